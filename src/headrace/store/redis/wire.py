"""The bytes of one connection to Redis: replies are matched to commands in the order of sending."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import hiredis

from headrace.metrics.histogram import SECONDS
from headrace.store.redis.errors import WRITE_REFUSALS, OutcomeUnknown, RedisError, StoreAway
from headrace.wire.schema import Buffer

if TYPE_CHECKING:
    from headrace.store.redis.link import RedisLink

log = logging.getLogger(__name__)

_SEND_BUFFER_BYTES = 4 << 20
_HELD_BACK_BYTES = 256 << 10
_LISTENER_EVERY_S = 2.0
"""How often the server of a subscription is asked whether it is there."""
_FAILED = "processing a reply from redis failed"

Then = Callable[[Any, Exception | None], None]
"""Called with a reply, or with why there is none, in the turn in which it arrives: no future, no later turn."""


class RedisWire(asyncio.Protocol):
    """The bytes of one connection: replies matched to commands in order."""

    def __init__(self, link: RedisLink) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self.why_closed = "the connection was closed"
        self._link = link
        self._is_aborted = False
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=hiredis.ReplyError)
        self._waiting: deque[tuple[asyncio.Future[Any] | None, Then | None, float]] = deque()
        self._posted: list[Buffer] = []
        """Commands that leave with the next one, or at the end of the turn."""
        self._held_back: list[Buffer] | None = None
        """Commands that leave together: uvloop sends each at once, and the server wakes up for each."""
        self._held_back_bytes = 0
        self._last_heard = 0.0
        self._seems_silent = False
        self.on_next_send: Callable[[], None] | None = None
        """Told once of a command that is sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX:
            # What is in flight to the server: with the default an entry of 1 MB takes six turns of both loops.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._is_aborted and not self.closed.done()

    @property
    def is_waiting(self) -> bool:
        """Whether a command has not been answered yet."""
        return bool(self._waiting)

    def send(self, chunks: list[Buffer]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        self.send_then(chunks, None, future)
        return future

    def post(self, command: Buffer) -> None:
        """Sends a command without waiting for its outcome, in one write with the next command."""
        if not self._posted:
            self.loop.call_soon(self._send_posted)
        self._posted.append(command)

    def _send_posted(self) -> None:
        if self._posted and self.is_open:
            *others, last = self._posted
            self._posted = others
            self.send_then([last], None)

    def send_then(self, chunks: list[Buffer], then: Then | None, future: asyncio.Future[Any] | None = None) -> None:
        """Sends a command and calls `then` with its reply, or gives it to the future; nobody may want to know."""
        if self._transport is None or self._is_aborted or self.closed.done():
            raise StoreAway(self.why_closed)
        now = time.monotonic()
        if self._posted:
            posted, self._posted = self._posted, []
            self._waiting.extend((None, None, now) for _ in posted)
            chunks = [*posted, *chunks]
        self._waiting.append((future, then, now))
        if self.on_next_send is not None:
            tell, self.on_next_send = self.on_next_send, None
            tell()
        if self._held_back is not None:
            self._held_back += chunks
            self._held_back_bytes += sum(map(len, chunks))
            if self._held_back_bytes > _HELD_BACK_BYTES:
                self.let_go()
                self._held_back = []
        elif len(chunks) == 1:
            self._transport.write(chunks[0])
        else:
            self._transport.writelines(chunks)

    def hold_back(self) -> bool:
        """What is sent until `let_go` leaves in one write; False if it does already, and others let go."""
        if self._held_back is not None:
            return False
        self._held_back = []
        return True

    def let_go(self) -> None:
        """Sends what was held back."""
        chunks, self._held_back, self._held_back_bytes = self._held_back, None, 0
        if chunks and self._transport is not None and not self._is_aborted and not self.closed.done():
            self._transport.writelines(chunks)

    def listen(self, channel: str, timeout_s: float) -> None:
        """Subscribes. From now on messages come without being asked for.

        Nothing else is sent, and a server that vanished says nothing: so it is asked now and then whether it is there.
        """
        if self._transport is not None:
            self._transport.write(hiredis.pack_command(cast("Any", ("SUBSCRIBE", channel))))
            self._ask_whether_there(timeout_s, was_silent=False)

    def _ask_whether_there(self, timeout_s: float, *, was_silent: bool) -> None:
        """Any reply will do, also a refusal. Given up after two silent looks, as in `check_overdue`."""
        if self._transport is None or not self.is_open:
            return
        is_silent = 0 < timeout_s < time.monotonic() - self._last_heard
        if was_silent and is_silent:
            self.abort(f"nothing was heard for {timeout_s:g} s")
            return
        self._transport.write(hiredis.pack_command(("PING",)))
        look = partial(self._ask_whether_there, timeout_s, was_silent=is_silent)
        self.loop.call_later(_LISTENER_EVERY_S, look)

    def data_received(self, data: bytes) -> None:
        self._last_heard = now = time.monotonic()
        round_trips = self._link.round_trips
        reader = self._reader
        reader.feed(data)
        holds_back = self.hold_back()  # the appends that follow on those acknowledged here
        try:
            while (reply := reader.gets()) is not False:
                if not self._waiting and self._link.on_message is not None:
                    self._pushed(reply)
                    continue
                future, then, sent = self._waiting.popleft()
                if isinstance(reply, hiredis.ReplyError):
                    self._refused(future, then, str(reply))
                elif then is not None:
                    # `observe` and `_tell` without a call, for every append's reply.
                    took_s = now - sent
                    round_trips.counts[bisect_left(SECONDS, took_s)] += 1
                    round_trips.total += took_s
                    try:
                        then(reply, None)
                    except Exception:
                        log.exception(_FAILED)
                elif future is not None:
                    round_trips.observe(now - sent)
                    if not future.done():
                        future.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.abort(f"not a Redis reply: {error}")
        finally:
            if holds_back:
                self.let_go()

    def _pushed(self, reply: Any) -> None:
        """Handles pushes to a subscribed link: messages, and the reply to its subscription."""
        if isinstance(reply, hiredis.ReplyError):
            if "'ping'" in str(reply):
                return
            log.error("redis does not allow subscribing", extra={"link": self._link.name, "why": str(reply)})
        elif reply[0] == b"message" and self._link.on_message is not None:
            self._link.on_message(reply[2])

    def _refused(self, future: asyncio.Future[Any] | None, then: Then | None, text: str) -> None:
        error = RedisError(text)
        if error.kind in WRITE_REFUSALS:
            error.where = str(self._link.address)
        if then is not None:
            _tell(then, None, error)
        elif future is not None and not future.done():
            future.set_exception(error)
        if error.kind in ("READONLY", "MASTERDOWN"):
            self.abort("the server became a replica")
        elif error.is_redirect and self._link.on_redirect is not None:
            self._link.on_redirect(error)
        elif error.kind == "CLUSTERDOWN" and self._link.on_trouble is not None:
            self._link.on_trouble()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.why_closed = f"the connection broke: {exc}"
        if not self.closed.done():
            self.closed.set_result(None)
        self._link.wire_closed(self)
        waiting, self._waiting = self._waiting, deque()
        for future, then, _ in waiting:
            if then is not None:
                _tell(then, None, OutcomeUnknown(self.why_closed))
            elif future is not None and not future.done():
                future.set_exception(OutcomeUnknown(self.why_closed))
                future.exception()  # a caller that has gone away does not make it an unhandled one

    def check_overdue(self, timeout_s: float) -> float:
        """Gives up a server that is silent: large replies may hold others up, but then something arrives.

        Looked at twice, for what arrived while this process itself was busy has not been read yet at the first look.
        Returns for how long a reply has been due and nothing arrived.
        """
        if not self._waiting:
            self._seems_silent = False
            return 0.0
        silent_s = time.monotonic() - max(self._waiting[0][2], self._last_heard)
        was_silent, self._seems_silent = self._seems_silent, 0 < timeout_s < silent_s
        if was_silent and self._seems_silent:
            self.abort(f"no reply for {timeout_s:g} s")
        return silent_s

    def abort(self, why: str) -> None:
        """Closes at once; pending commands fail when the transport reports it, a moment later."""
        if self._is_aborted:
            return
        self._is_aborted = True
        self.why_closed = why
        self._link.wire_closed(self)
        if self._transport is not None:
            self._transport.abort()


def _tell(then: Then, reply: Any, error: Exception | None) -> None:
    """An exception in one callback must not cost others their replies."""
    try:
        then(reply, error)
    except Exception:
        log.exception(_FAILED)
