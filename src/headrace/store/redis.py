"""One pipelined connection to Redis that comes back by itself.

Commands are sent the moment they are called and answered in order; nothing waits for anything else. It is written
by hand over hiredis because every produce passes here: 5 to 8 us a call, where the common clients take 45 and more
(docs/decisions/002).

What a caller has to know about trouble is kept honest: a command that was not sent fails with StoreAway, one whose
answer was lost fails with OutcomeUnknown, and `generation` counts the connections, so that whoever relies on what it
saw before can tell that there was trouble since. On each connection the server's run id and replication id are
compared with the last ones: if either changed, the store may have gone back in time, and `timeline` counts that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from headrace.store.address import Address
from headrace.store.errors import OutcomeUnknown, RedisError, StoreAway, StoreError
from headrace.wire.schema import Buffer

log = logging.getLogger(__name__)

Argument = str | int | Buffer
_RECONNECT_FIRST_S = 0.02
_RECONNECT_MOST_S = 1.0
_SHORT_LIFE_S = 1.0
"""A connection that broke sooner than this is not made again at once."""
_CONNECT_TIMEOUT_S = 5.0
_SEND_BUFFER_BYTES = 4 << 20


class RedisLink:
    """A connection that is kept up from start() to close()."""

    def __init__(self, address: Address, name: str, timeout_ms: int = 10_000) -> None:
        self.address = address
        self.name = name
        self.timeout_s = timeout_ms / 1000
        self.generation = 0
        self.timeline = 0
        self.server: dict[str, str] = {}
        self._wire: _RedisWire | None = None
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._why_away = "not connected yet"
        self._channel = ""
        self.on_message: Callable[[bytes], None] | None = None

    async def start(self) -> None:
        """Connects, and raises what stands in the way if that fails; from then on the link looks after itself."""
        await self._connect()
        self._keeper = asyncio.create_task(self._keep(), name=f"redis link {self.name}")

    async def close(self) -> None:
        """Ends the link; commands under way fail."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._up.clear()
        if self._wire is not None:
            self._wire.abort("the link was closed")

    @property
    def is_up(self) -> bool:
        """Whether a command would be sent."""
        return self._up.is_set()

    async def wait_up(self, timeout_s: float) -> None:
        """Returns once there is a connection; StoreAway if it takes longer."""
        if self._up.is_set():
            return
        try:
            await asyncio.wait_for(self._up.wait(), timeout_s)
        except TimeoutError:
            raise StoreAway(self._why_away) from None

    def drop(self, why: str) -> None:
        """Gives the present connection up, so that a new one is made."""
        if self._wire is not None:
            self._wire.abort(why)

    def wire_closed(self, wire: _RedisWire) -> None:
        """Told by a connection that it takes no more commands."""
        if wire is self._wire:
            self._up.clear()

    def send(self, *arguments: Argument) -> asyncio.Future[Any]:
        """Sends a command now; the future gives its reply."""
        if not self._up.is_set() or self._wire is None:
            raise StoreAway(self._why_away)
        return self._wire.send([hiredis.pack_command(cast("Any", arguments))])

    def send_chunks(self, chunks: list[Buffer]) -> asyncio.Future[Any]:
        """Sends a command that is packed already, in pieces: how large values travel without a copy."""
        if not self._up.is_set() or self._wire is None:
            raise StoreAway(self._why_away)
        return self._wire.send(chunks)

    async def call(self, *arguments: Argument) -> Any:
        """Sends a command and waits for its reply."""
        return await self.send(*arguments)

    async def pipeline(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Sends commands in one go; the first failure is raised once all have been answered."""
        futures = [self.send(*command) for command in commands]
        replies = await asyncio.gather(*futures, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return replies

    async def transaction(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Runs commands as one atomic write (MULTI); a refused command is raised."""
        futures = [self.send("MULTI"), *(self.send(*c) for c in commands), self.send("EXEC")]
        replies = await asyncio.gather(*futures, return_exceptions=True)
        for reply in replies[1:-1]:
            if isinstance(reply, BaseException):
                raise reply
        if isinstance(replies[-1], BaseException):
            raise replies[-1]
        results = cast("list[Any]", replies[-1])
        for result in results:
            if isinstance(result, hiredis.ReplyError):
                raise RedisError(str(result))
        return results

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        address = self.address
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                if address.path:
                    _, wire = await loop.create_unix_connection(lambda: _RedisWire(self), address.path)
                else:
                    _, wire = await loop.create_connection(
                        lambda: _RedisWire(self), address.host, address.port, ssl=address.tls_context()
                    )
        except (OSError, TimeoutError) as error:
            raise StoreAway(f"{address}: {_reason(error, is_tls=address.tls)}") from None
        try:
            async with asyncio.timeout(max(self.timeout_s, _CONNECT_TIMEOUT_S)):
                await self._greet(wire)
                self._wire = wire
        except TimeoutError:
            wire.abort("no answer to the greeting")
            raise StoreAway(f"{address}: no answer to the greeting") from None
        except OutcomeUnknown:
            # A greeting changes nothing, so it does not matter how much of it arrived.
            raise StoreAway(f"{address}: {wire.why_closed} (no Redis there, or one with TLS?)") from None
        except BaseException:
            wire.abort("the greeting failed")
            raise
        if wire.closed.done():
            raise StoreAway(f"{address}: closed at once")
        self._up.set()

    async def _greet(self, wire: _RedisWire) -> None:
        """Authenticates, selects the database, waits for a server that is loading, and learns who it is."""

        async def ask(*arguments: Argument) -> Any:
            return await wire.send([hiredis.pack_command(cast("Any", arguments))])

        if self.address.password:
            user = (self.address.username,) if self.address.username else ()
            await ask("AUTH", *user, self.address.password)
        if self.address.database:
            await ask("SELECT", self.address.database)
        with contextlib.suppress(RedisError):  # a name for CLIENT LIST is a courtesy that a user's rules may forbid
            await ask("CLIENT", "SETNAME", f"headrace-{self.name}")
        facts = parse_info(await ask("INFO", "server")) | parse_info(await ask("INFO", "replication"))
        facts |= parse_info(await ask("INFO", "persistence"))
        if facts.get("loading") == "1":
            raise StoreAway(f"{self.address}: the server is still loading its log")
        if facts.get("role") == "slave" and facts.get("slave_read_only") != "0":
            raise StoreAway(f"{self.address}: the server is a replica")
        identity = (facts.get("run_id"), facts.get("master_replid"))
        if self.server and identity != (self.server.get("run_id"), self.server.get("master_replid")):
            self.timeline += 1
        self.generation += 1
        self.server = facts
        if self._channel:
            wire.listen(self._channel)

    async def subscribe(self, channel: str, on_message: Callable[[bytes], None]) -> None:
        """Turns this link into one that listens to a channel, on this connection and all later ones."""
        self._channel, self.on_message = channel, on_message
        if self._wire is not None and not self._wire.closed.done():
            self._wire.listen(channel)

    async def _keep(self) -> None:
        """Watches the connection; makes a new one whenever it is gone."""
        pause_s, since = _RECONNECT_FIRST_S, self._loop_time()
        while True:
            if self._wire is not None and not self._wire.closed.done():
                await self._watch(self._wire)
                self._up.clear()
                self._why_away = self._wire.why_closed
                log.warning("redis is away", extra={"link": self.name, "why": self._why_away})
                pause_s = _RECONNECT_FIRST_S
                if self._loop_time() - since < _SHORT_LIFE_S:
                    await asyncio.sleep(pause_s)
            try:
                await self._connect()
            except StoreError as error:
                self._why_away = error.why if isinstance(error, StoreAway) else str(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RECONNECT_MOST_S)
                continue
            since = self._loop_time()
            log.info("redis is back", extra={"link": self.name, "address": str(self.address)})

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()

    async def _watch(self, wire: _RedisWire) -> None:
        """Returns when the connection is closed; closes it when a reply is overdue."""
        while not wire.closed.done():
            await asyncio.wait([wire.closed], timeout=max(self.timeout_s / 4, 0.05))
            wire.check_overdue(self.timeout_s)


class _RedisWire(asyncio.Protocol):
    """The bytes of one connection: replies matched to commands in order."""

    def __init__(self, link: RedisLink) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self.why_closed = "the connection was closed"
        self._link = link
        self._is_aborted = False
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=hiredis.ReplyError)
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._last_heard = 0.0
        self._seems_silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX:
            # What is in flight to the server: with the default an entry of 1 MB takes six turns of both loops.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)

    def send(self, chunks: list[Buffer]) -> asyncio.Future[Any]:
        if self._transport is None or self._is_aborted or self.closed.done():
            raise StoreAway(self.why_closed)
        future: asyncio.Future[Any] = self.loop.create_future()
        self._waiting.append((future, self.loop.time()))
        if len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)
        return future

    def listen(self, channel: str) -> None:
        """Subscribes. From now on messages come without being asked for."""
        if self._transport is not None:
            self._transport.write(hiredis.pack_command(cast("Any", ("SUBSCRIBE", channel))))

    def data_received(self, data: bytes) -> None:
        self._last_heard = self.loop.time()
        reader = self._reader
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not False:
                if self._link.on_message is not None and not self._waiting:
                    self._pushed(reply)
                    continue
                future, _ = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(reply, hiredis.ReplyError):
                    self._refused(future, str(reply))
                else:
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.abort(f"not a Redis reply: {error}")

    def _pushed(self, reply: Any) -> None:
        """What comes to a link that listens: messages, and the answer to its subscription."""
        if isinstance(reply, hiredis.ReplyError):
            log.error("redis does not let us listen", extra={"link": self._link.name, "why": str(reply)})
        elif reply[0] == b"message" and self._link.on_message is not None:
            self._link.on_message(reply[2])

    def _refused(self, future: asyncio.Future[Any], text: str) -> None:
        error = RedisError(text)
        future.set_exception(error)
        if error.kind in ("READONLY", "MASTERDOWN"):
            self.abort("the server became a replica")

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.why_closed = f"the connection broke: {exc}"
        if not self.closed.done():
            self.closed.set_result(None)
        self._link.wire_closed(self)
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if not future.done():
                future.set_exception(OutcomeUnknown(self.why_closed))
                future.exception()  # a caller that has gone away does not make it an unhandled one

    def check_overdue(self, timeout_s: float) -> None:
        """Gives up a server that is silent: large replies may hold others up, but then something arrives.

        Looked at twice, for what arrived while this process itself was busy has not been read yet at the first look.
        """
        if timeout_s <= 0 or not self._waiting:
            return
        was_silent, since = self._seems_silent, max(self._waiting[0][1], self._last_heard)
        self._seems_silent = self.loop.time() - since > timeout_s
        if was_silent and self._seems_silent:
            self.abort(f"no reply for {timeout_s:g} s")

    def abort(self, why: str) -> None:
        """Closes at once; what waits fails when the transport says so, which is soon, not now."""
        if self._is_aborted:
            return
        self._is_aborted = True
        self.why_closed = why
        self._link.wire_closed(self)
        if self._transport is not None:
            self._transport.abort()


def _reason(error: OSError, *, is_tls: bool) -> str:
    """Why there is no connection, with what to try; asyncio leaves some errors without a word."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message} (a CA of your own? add ?ssl_ca_certs=FILE)"
    if is_tls and (isinstance(error, ssl.SSLError) or not str(error)):
        return "no TLS handshake (a port without TLS?)"
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or f"no answer within {_CONNECT_TIMEOUT_S:g} s"


def parse_info(text: bytes | str) -> dict[str, str]:
    """The reply of INFO as a dictionary."""
    lines = (text.decode() if isinstance(text, bytes) else text).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
