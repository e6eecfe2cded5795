"""From accept to login: unauthenticated connections, limited in number and time.

A client that only connects costs the broker a socket; one that begins TLS costs a millisecond of its event loop. So
both are bounded before anything else is read: in number, in total and per address (`places.py`), and in time; TLS
handshakes also in rate, counted when their first byte has arrived (`handshake_turns.py`).

Sockets are accepted by hand here: asyncio would finish TLS before it reports a connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from typing import TYPE_CHECKING

from headrace.broker.network.handshake_turns import HandshakeTurns
from headrace.broker.network.handshakes import Handshakes
from headrace.broker.network.places import Places

if TYPE_CHECKING:
    from headrace.broker.network.entrance import Entrance
    from headrace.broker.network.newcomer import Newcomer
    from headrace.broker.network.server import Server

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_NO_FILES_PAUSE_S = 0.1


class Gate:
    """Everybody who is on the way in, on all listeners of a node."""

    def __init__(self, server: Server) -> None:
        options = server.logins.options
        self._loop = server.loop
        self.places = Places(options.unauthenticated_max, options.unauthenticated_per_address_max, server.loop.time)
        self.handshakes = Handshakes(server.loop)
        self._turns = HandshakeTurns(server.loop, options.tls_handshakes_per_second)
        self._listening: dict[socket.socket, Entrance] = {}
        self._paused: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.places)

    # -- accepting ----------------------------------------------------------------------------------------------

    def open(self, listener: socket.socket, entrance: Entrance) -> None:
        listener.setblocking(False)
        self._listening[listener] = entrance
        self._loop.add_reader(listener, self._accept, listener, entrance)

    def close(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        for listener in self._listening:
            self._loop.remove_reader(listener)
            listener.close()
        self._listening.clear()
        self._turns.close()
        for newcomer in self.places.all():
            newcomer.turn_away()

    def _accept(self, listener: socket.socket, entrance: Entrance) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                line, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.warning("connections cannot be accepted", extra={"why": error.strerror})
                    self._pause(_NO_FILES_PAUSE_S)
                return
            line.setblocking(False)
            entrance.came(line, address)

    def _pause(self, pause_s: float) -> None:
        """Lets further clients wait in the system's queue."""
        if self._paused is not None:
            return
        for listener in self._listening:
            self._loop.remove_reader(listener)
        self._paused = self._loop.call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._paused = None
        for listener, entrance in self._listening.items():
            self._loop.add_reader(listener, self._accept, listener, entrance)

    async def handshake_turn(self, newcomer: Newcomer) -> None:
        """Returns when another TLS handshake may begin. Until then the newcomer waits for us."""
        newcomer.since_s = math.inf
        await self._turns.wait(newcomer.host)
        newcomer.since_s = self._loop.time()
