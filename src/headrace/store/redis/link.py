"""One pipelined connection to Redis that reconnects by itself.

Commands are sent when they are called and answered in order; nothing waits for anything else. It is written by hand
over hiredis because every produce passes through it: 5 to 8 us per call, where the common clients take 45 and more
(docs/decisions/002).

Callers always know what happened: a command that was not sent fails with StoreAway, one whose reply was lost with
OutcomeUnknown. `generation` counts connections, so that a cache can tell whether there was trouble since it was read.
On each connection the server's run id and replication id are compared with the previous ones: if either changed, the
store may have gone back in time, and `timeline` rises.

A link knows nothing about clusters. Before each connection it asks where to connect (`locate`); it reports a redirect
(`on_redirect`) and returns it to the caller as an error. Following it is up to `route.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

import hiredis

from headrace.metrics.histogram import Histogram
from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address
from headrace.store.redis.errors import OutcomeUnknown, RedisError, StoreAway, StoreError
from headrace.store.redis.wire import RedisWire
from headrace.wire.schema import Buffer

log = logging.getLogger(__name__)

Argument = str | int | Buffer
_RECONNECT_FIRST_S = 0.02
_RECONNECT_MOST_S = 1.0
_SHORT_LIFE_S = 1.0
"""A connection that broke sooner than this is not made again at once."""
_CONNECT_TIMEOUT_S = 5.0
_FIRST_CONNECTION_S = 5.0
"""A link that was never up says nothing for so long: whoever starts it says why it cannot."""
_LEAST_LOOK_S = 0.05
_SUSPECT_S = 0.5
"""After so long without a reply others are asked whether the server was replaced: it may hang for good."""
_TIMEOUT_MS = StoreOptions().timeout_ms
_REPLACED = "another server has taken its place"


class RedisLink:
    """A connection that is kept up from start() to close()."""

    def __init__(
        self,
        address: Address,
        name: str,
        timeout_ms: int = _TIMEOUT_MS,
        *,
        locate: Callable[[], Awaitable[Address]] | None = None,
        any_role: bool = False,
    ) -> None:
        self.address = address
        """Address of the last connection, or of the first attempt."""
        self.name = name
        self.is_up = False
        """Whether a command would be sent."""
        self.timeout_s = timeout_ms / 1000
        self.round_trips = Histogram()
        self.generation = 0
        self.timeline = 0
        self.server: dict[str, str] = {}
        self.wire: RedisWire | None = None
        """The connection, the last one while there is none; commands may be sent while `is_up`."""
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._attempt: asyncio.Timeout | None = None
        """Ends the attempt to connect that is under way."""
        self._why_away = "not connected yet"
        self._logged: set[str] = set()
        """The reasons since it was last up: one that may go to any of several servers has a reason for each."""
        self.refusal: RedisError | None = None
        """Why the server refused the last attempt to connect; None if it could not be reached, or was."""
        self._channel = ""
        self._locate = locate
        self._any_role = any_role
        self.on_message: Callable[[bytes], None] | None = None
        self.on_greeted: Callable[[], None] | None = None
        """Called for a new connection; commands then wait until `admit`. Without it they are sent at once."""
        self.on_trouble: Callable[[], None] | None = None
        """Told that there is no connection, or none could be made."""
        self.on_silence: Callable[[], None] | None = None
        """Told that a reply is due, and nothing has arrived for a while: not for commands that block."""
        self.on_redirect: Callable[[RedisError], object] | None = None
        self.locate_anew = locate
        """Asks for the server's address those who know it, whatever was heard of it before."""

    async def start(self) -> None:
        """Connects, or raises the reason; from then on the link reconnects by itself."""
        await self._connect()
        self.start_soon()

    def start_soon(self) -> None:
        """Looks after itself from now on, and connects when it can."""
        self._keeper = asyncio.create_task(self._keep(), name=f"redis link {self.name}")

    async def close(self) -> None:
        """Ends the link; commands under way fail."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._set_down()
        if self.wire is not None:
            self.wire.abort("the link was closed")

    @property
    def identity(self) -> str:
        """Identity of the server's run: another one means that the store may have gone back in time."""
        return f"{self.server.get('run_id', '')} {self.server.get('master_replid', '')}"

    @property
    def why_away(self) -> str:
        """Why there is no connection, or why the last one ended."""
        return self._why_away

    @why_away.setter
    def why_away(self, why: str) -> None:
        self._why_away = why

    @property
    def mode(self) -> str:
        """Standalone, cluster or sentinel, by the server's own word: Redis and Valkey name the fact differently."""
        return self.server.get("server_mode") or self.server.get("redis_mode", "")

    def admit(self) -> None:
        """Lets commands through, if there is a connection."""
        if self.wire is not None and self.wire.is_open:
            self.is_up = True
            self._up.set()

    def _set_down(self) -> None:
        self.is_up = False
        self._up.clear()

    async def wait_up(self, timeout_s: float) -> None:
        """Returns once there is a connection; StoreAway if it takes longer."""
        if self.is_up:
            return
        try:
            async with asyncio.timeout(timeout_s):  # `wait_for` of 3.11 may forget that its task was cancelled
                await self._up.wait()
        except TimeoutError:
            raise StoreAway(self._why_away) from None

    def drop(self, why: str) -> None:
        """Gives the present connection up, so that a new one is made."""
        if self.wire is not None:
            self.wire.abort(why)

    async def check_place(self) -> None:
        """Raises StoreAway, and connects again, if another server has taken the place of this connection's."""
        if self.locate_anew is None or not self.is_up:
            return
        now = await self.locate_anew()
        if (now.host, now.port) != (self.address.host, self.address.port):
            self.drop(_REPLACED)
            raise StoreAway(_REPLACED)

    def abandon(self, why: str) -> None:
        """The server at this address was replaced: gives up the connection, or the attempt to make one."""
        self.drop(why)
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(self._loop_time())

    def wire_closed(self, wire: RedisWire) -> None:
        """Told by a connection that it takes no more commands."""
        if wire is self.wire:
            self._set_down()

    def send(self, *arguments: Argument) -> asyncio.Future[Any]:
        """Sends a command now; the future gives its reply."""
        if not self.is_up or self.wire is None:
            raise StoreAway(self._why_away)
        return self.wire.send([hiredis.pack_command(cast("Any", arguments))])

    def send_chunks(self, chunks: list[Buffer]) -> asyncio.Future[Any]:
        """Sends a command that is packed already, in pieces: how large values travel without a copy."""
        if not self.is_up or self.wire is None:
            raise StoreAway(self._why_away)
        return self.wire.send(chunks)

    def post(self, *arguments: Argument) -> None:
        """Sends a command that may be lost without harm."""
        if self.is_up and self.wire is not None:
            self.wire.post(hiredis.pack_command(cast("Any", arguments)))

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
        self.refusal = None
        if self._locate is not None:
            self.address = await self._locate()
        try:
            await self._connect_to(self.address)
        except RedisError as error:
            refused = RedisError(error.text, str(self.address))
            self.refusal = None if error.passes_by_itself else refused
            raise refused from None
        finally:
            self._attempt = None

    async def _connect_to(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            context = address.tls_context()
        except OSError as error:
            why = _reason(error, is_tls=True) if error.filename else str(error).removesuffix(".")
            raise StoreAway(f"{address}: {why}", "correct the ssl_ files in --redis") from None
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S) as self._attempt:
                if address.path:
                    _, wire = await loop.create_unix_connection(lambda: RedisWire(self), address.path)
                else:
                    _, wire = await loop.create_connection(
                        lambda: RedisWire(self), address.host, address.port, ssl=context
                    )
        except (OSError, TimeoutError) as error:
            raise StoreAway(f"{address}: {_reason(error, is_tls=address.tls)}") from None
        try:
            async with asyncio.timeout(max(self.timeout_s, _CONNECT_TIMEOUT_S)) as self._attempt:
                await self._greet(wire)
                self.wire = wire
        except TimeoutError:
            wire.abort("no reply to the handshake")
            raise StoreAway(f"{address}: no reply to the handshake") from None
        except OutcomeUnknown:
            # A greeting changes nothing, so it does not matter how much of it arrived.
            hint = "one that wants a certificate?" if address.tls else "one with TLS?"
            raise StoreAway(f"{address}: {wire.why_closed} (no Redis there, or {hint})") from None
        except BaseException:
            wire.abort("the greeting failed")
            raise
        if wire.closed.done():
            raise StoreAway(f"{address}: closed at once")
        if self.on_greeted is not None:
            self.on_greeted()
        else:
            self.admit()

    async def _greet(self, wire: RedisWire) -> None:
        """Authenticates, selects the database, waits for a server that is loading, and learns who it is."""

        async def ask(*arguments: Argument) -> Any:
            return await wire.send([hiredis.pack_command(cast("Any", arguments))])

        if self.address.username or self.address.password:
            user = (self.address.username,) if self.address.username else ()
            await ask("AUTH", *user, self.address.password)
        if self.address.database:
            await ask("SELECT", self.address.database)
        with contextlib.suppress(RedisError):  # a name for CLIENT LIST is a courtesy that a user's rules may forbid
            await ask("CLIENT", "SETNAME", f"headrace-{self.name}")
        facts = parse_info(await ask("INFO", "server")) | parse_info(await ask("INFO", "replication"))
        facts |= parse_info(await ask("INFO", "persistence"))
        if facts.get("loading") == "1":
            raise StoreAway(f"{self.address}: the server is still loading its log", "wait until it has")
        is_replica = facts.get("role") == "slave" and facts.get("slave_read_only") != "0"
        if is_replica and not self._any_role:
            primary = f"{facts.get('master_host')}:{facts.get('master_port')}"
            raise StoreAway(f"{self.address}: the server is a replica of {primary}", "name the primary with --redis")
        identity = (facts.get("run_id"), facts.get("master_replid"))
        if self.server and identity != (self.server.get("run_id"), self.server.get("master_replid")):
            self.timeline += 1
        self.generation += 1
        self.server = facts
        if self._channel:
            wire.listen(self._channel, self.timeout_s)

    def listen_to(self, channel: str, on_message: Callable[[bytes], None]) -> None:
        """Subscribes this link to a channel, on this connection and all later ones."""
        self._channel, self.on_message = channel, on_message
        if self.wire is not None and not self.wire.closed.done():
            self.wire.listen(channel, self.timeout_s)

    async def _keep(self) -> None:
        """Watches the connection; makes a new one whenever it is gone."""
        pause_s, since = _RECONNECT_FIRST_S, self._loop_time()
        while True:
            if self.wire is not None and not self.wire.closed.done():
                await self._watch(self.wire)
                self._set_down()
                self._logged.clear()
                self._note_away(self.wire.why_closed)
                pause_s = _RECONNECT_FIRST_S
                if self._loop_time() - since < _SHORT_LIFE_S:
                    await asyncio.sleep(pause_s)
            try:
                await self._connect()
            except StoreError as error:
                is_starting = not self.generation and self._loop_time() - since < _FIRST_CONNECTION_S
                self._note_away(error.why if isinstance(error, StoreAway) else str(error), is_logged=not is_starting)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RECONNECT_MOST_S)
                continue
            since = self._loop_time()
            if self.generation > 1:
                log.info("redis is available again", extra={"link": self.name, "address": str(self.address)})

    def _note_away(self, why: str, *, is_logged: bool = True) -> None:
        """Logs each reason once, not each attempt: a refused login follows on a closed connection."""
        self._why_away = why
        if is_logged and why not in self._logged:
            self._logged.add(why)
            log.warning("redis is unavailable", extra={"link": self.name, "address": str(self.address), "why": why})
        if self.on_trouble is not None:
            self.on_trouble()

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()

    async def _watch(self, wire: RedisWire) -> None:
        """Returns when the connection is closed; closes it when a reply is overdue. Nobody looks while none is due."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        every_s = max(min(self.timeout_s / 4, _SUSPECT_S), _LEAST_LOOK_S)

        def look() -> None:
            nonlocal timer
            if wire.check_overdue(self.timeout_s) > _SUSPECT_S and self.on_silence is not None:
                self.on_silence()
            if wire.is_waiting:
                timer = loop.call_later(every_s, look)
            else:
                wire.on_next_send = begin

        def begin() -> None:
            nonlocal timer
            timer = loop.call_later(every_s, look)

        look()
        try:
            await asyncio.shield(wire.closed)
        finally:
            if timer is not None:
                timer.cancel()


def _reason(error: OSError, *, is_tls: bool) -> str:
    """Why there is no connection, and what to try; some of asyncio's errors have no text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message} (a CA of your own? add ?ssl_ca_certs=FILE)"
    if error.filename:
        return f"{error.strerror}: {error.filename}"
    if is_tls and (isinstance(error, ssl.SSLError) or not str(error)):
        return "no TLS handshake (a port without TLS?)"
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or f"no answer within {_CONNECT_TIMEOUT_S:g} s"


def parse_info(text: bytes | str) -> dict[str, str]:
    """The reply of INFO as a dictionary."""
    lines = (text.decode() if isinstance(text, bytes) else text).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
