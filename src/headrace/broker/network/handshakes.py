"""A TLS handshake that says why it failed.

asyncio and uvloop close a connection whose handshake failed and drop the alert that OpenSSL made for the client. A
client that sees nothing but the end takes it for trouble of the network, and tries for ever: in TLS 1.3 it believes by
then that its certificate was taken. So the alert is sent by hand, over a second handle of the socket, and the
connection stays until the client has gone or had its time: closed with its bytes unread, it would lose the alert.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

_LINGER_S = 1.0
_READ_BYTES = 16 << 10

Begin = Callable[[ssl.SSLContext], Any]
"""Makes the handshake with a context; an awaitable."""


class _Telling(ssl.SSLObject):
    """Keeps the alert of a failed handshake, which the event loop would drop."""

    outgoing: ssl.MemoryBIO
    alert = b""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.alert = self.outgoing.read()
            raise


class _StandIn(ssl.SSLContext):
    """Stands in for the context of one handshake at a time, to get hold of its SSL object."""

    real: ssl.SSLContext
    made: _Telling | None

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        self.real.sslobject_class = _Telling
        self.made = cast("_Telling", self.real.wrap_bio(incoming, outgoing, *args, **options))
        self.made.outgoing = outgoing
        return self.made


class Handshakes:
    """The handshakes of a node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._free: list[_StandIn] = []
        """One costs a fifth of a millisecond, so they are used again."""

    async def make(self, line: socket.socket, context: ssl.SSLContext, begin: Begin) -> None:
        """Performs a handshake; the client is told why if it fails."""
        stand_in = self._free.pop() if self._free else _StandIn(ssl.PROTOCOL_TLS_SERVER)
        stand_in.real, stand_in.made = context, None
        with line.dup() as second:
            try:
                await begin(stand_in)
            except ssl.SSLError:
                await self._tell(second, stand_in.made.alert if stand_in.made is not None else b"")
                raise
            finally:
                stand_in.made = None
                self._free.append(stand_in)

    async def _tell(self, line: socket.socket, alert: bytes) -> None:
        if not alert:
            return
        line.setblocking(False)
        with contextlib.suppress(OSError, TimeoutError):
            line.send(alert)
            line.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_LINGER_S):
                while await self._loop.sock_recv(line, _READ_BYTES):
                    pass
