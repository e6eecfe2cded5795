"""One client connection: splits its bytes into frames, which `requests.py` handles.

Small frames are copied out of one buffer that all connections share; a larger frame is received straight into its own
buffer, a pooled one (`frame_buffers`) or one that grows with the bytes received, so a length alone costs no memory.
Reading pauses while the budget is used up, the pipeline is full, or the client does not read its responses.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Container
from typing import TYPE_CHECKING, cast

from headrace.broker.network.frame_buffers import LEAST_BYTES, Frame
from headrace.broker.network.requests import WAITING_APIS, Requests
from headrace.broker.produce.refused_batches import RefusedBatches
from headrace.wire.apis import FETCH
from headrace.wire.codec import DecodeError
from headrace.wire.frame import read_request_header

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.broker.logins.login import Login
    from headrace.broker.network.server import Server

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
_FIRST_ALLOCATION_BYTES = 64 << 10
_BEGINNING_BYTES = 4 << 10
_TLS_HANDSHAKE = 0x16


class Connection(Requests, asyncio.BufferedProtocol):
    """The protocol of one client."""

    login: Login | None = None
    """How the client logged in; None where nobody has to."""

    def __init__(self, server: Server, access: Access) -> None:
        super().__init__(server)
        self.peer = ""
        self.peer_host = ""
        self.refused_batches = RefusedBatches()
        self.access = access
        """What the client reaches, as whoever it is."""
        self.answer_room = server.answer_room
        """The bytes that answers may hold, this client's and everybody's."""
        self._head = b""
        self._frame: Frame | None = None
        self._frame_bytes = 0
        self._was_large = False
        """Whether the last frame had a buffer of its own."""
        self._filled = 0
        self._arrived_bytes = 0
        self._was_held_up = False
        self._muted_until = 0.0
        self.is_closing = False
        """Whether it is closing: no more answers are sent."""

    # -- the transport's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        if not self.peer:
            peer = transport.get_extra_info("peername")
            self.peer_host, self.peer = (peer[0], f"{peer[0]}:{peer[1]}") if isinstance(peer, tuple) else ("?", "?")
            self.access = self.access.from_host(self.peer_host)
            self._server.hold_back(self)
        self._transport.set_write_buffer_limits(high=self._server.options.write_buffer_bytes)
        if not self._server.admit(self):
            self.close("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Whole requests are still carried out: a producer without acks, or a member that leaves, does not wait.

        Only a long poll ends: nobody is there to get its records.
        """
        self.is_closing = True
        self._transport = None
        self._pauses.clear()
        budget = self._server.budget
        if self._frame is not None:
            budget.give(len(self._frame))
            self._server.frame_buffers.give(self._frame)
            self._frame = None
        budget.forget(self)
        self._count_unsent(0)
        self.wait_timer.close()
        for slot in self._slots:
            if slot.header.api_key == FETCH:
                slot.cancel()
        self._advance()
        if self.is_idle:
            self._rest()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        shared = self._server.receive_buffer
        if not self._head:
            # Of one large frame after the other only the beginning is received here, and copied.
            return shared[:_BEGINNING_BYTES] if self._was_large else shared
        shared[: len(self._head)] = self._head
        return shared[len(self._head) :]

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        self.last_active = server.loop.time()
        server.watchdog.idle_ticks = 0
        if server.watchdog.is_resting:
            server.watchdog.stir()
        self._arrived_bytes += nbytes
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == len(self._frame):
                self._grow_or_finish()
        else:
            size = len(self._head) + nbytes
            self._head = b""
            self._split(server.receive_buffer[:size])
        if self._backlog:
            self._advance()
        budget = server.budget
        if budget.arriving_bytes + budget.whole_bytes >= budget.limit_bytes and not self.is_idle:
            budget.wait(self)
            self.pause("budget")

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.pause("writing")

    def resume_writing(self) -> None:
        self.last_active = self._server.loop.time()
        if self._transport is not None:
            self._count_unsent(self._transport.get_write_buffer_size())
        self.resume("writing")
        self._advance()

    # -- frames -------------------------------------------------------------------------------------------------

    def _split(self, data: memoryview) -> None:
        """Takes whole frames off the shared buffer; the remainder begins the next one."""
        pos, end = 0, len(data)
        limit = self._server.broker.options.frame_limit_bytes
        while not self.is_closing and end - pos >= 4:
            (size,) = _LENGTH.unpack_from(data, pos)
            if not 0 < size <= limit:
                self._refuse_length(size, bytes(data[pos : pos + 4]), limit)
                return
            pos += 4
            if end - pos < size:
                self._begin(size, data[pos:])
                return
            self._was_large = False
            self._server.budget.whole_bytes += size
            self._whole(bytearray(data[pos : pos + size]))
            pos += size
        if pos < end:
            self._head = bytes(data[pos:])

    def _refuse_length(self, size: int, raw: bytes, limit: int) -> None:
        if raw[0] == _TLS_HANDSHAKE:
            self.close("the client uses TLS, but this listener does not")
        elif raw in (b"GET ", b"POST", b"HEAD", b"PUT "):
            self.close("the client uses HTTP; this is a Kafka listener")
        else:
            self.close(f"a request of {size} bytes is outside 1 to {limit}")

    def _begin(self, size: int, data: memoryview) -> None:
        self._frame_bytes = size
        self._was_large = size >= LEAST_BYTES
        self._filled = len(data)
        self._frame = self._server.frame_buffers.take(size) or bytearray(
            min(size, max(_FIRST_ALLOCATION_BYTES, 2 * len(data)))
        )
        self._frame[: len(data)] = data
        self._server.budget.take(len(self._frame))

    def _grow_or_finish(self) -> None:
        """The buffer is full: the frame is whole, or its buffer doubles as far as the budget allows."""
        assert self._frame is not None
        if self._filled < len(self._frame):
            return
        if self._filled == self._frame_bytes:
            frame, self._frame = self._frame, None
            self._server.budget.frame_is_whole(self, len(frame))
            self._whole(frame)
        elif self._server.budget.may_grow(self):
            # A new buffer: the transport still holds the old one, which therefore cannot be resized.
            grown = bytearray(min(self._frame_bytes, 2 * len(self._frame)))
            grown[: self._filled] = self._frame
            self._server.budget.take(len(grown) - len(self._frame))
            self._frame = grown
        else:
            self.pause("budget")

    def budget_freed(self) -> None:
        """Room again: a frame that waited grows, and reading goes on."""
        if self.is_closing:
            return
        self.resume("budget")
        if self._frame is not None:
            self._grow_or_finish()

    def _whole(self, frame: Frame) -> None:
        try:
            self._backlog.append((read_request_header(frame), frame))
        except DecodeError as error:
            self._server.budget.request_done(len(frame))
            self._server.frame_buffers.give(frame)
            self.close(str(error))

    # -- between requests ---------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Everything is answered."""
        if self._transport is None:
            self._server.forget(self)
        elif self._server.is_stopping:
            self.close("")
        elif "budget" in self._pauses and not self._needs_room:
            self._server.budget.stop_waiting(self)
            self.resume("budget")

    def _count_unsent(self, size_bytes: int) -> None:
        self.answer_room.used_bytes += size_bytes - self._unsent_bytes
        self._unsent_bytes = size_bytes

    @property
    def _needs_room(self) -> bool:
        """Whether an arriving frame has filled its buffer."""
        return self._frame is not None and self._filled == len(self._frame)

    def is_slow(self, least_bytes: int) -> bool:
        """Whether an arriving frame got less than that since the last call, without being held up by us."""
        arrived, self._arrived_bytes = self._arrived_bytes, 0
        was_held_up, self._was_held_up = self._was_held_up, bool(self._pauses)
        return self._frame is not None and not was_held_up and arrived < least_bytes

    # -- pausing and closing ------------------------------------------------------------------------------------

    def pause(self, reason: str) -> None:
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses.add(reason)
        self._was_held_up = True

    def mute(self, pause_ms: int) -> None:
        """Takes no request for a time, as its quota wants it; answers that are due still leave."""
        self._muted_until = max(self._muted_until, self._server.loop.time() + pause_ms / 1000)
        if "quota" not in self._pauses:
            self.pause("quota")
            self._server.loop.call_at(self._muted_until, self._unmute)

    def _unmute(self) -> None:
        if self._muted_until > self._server.loop.time():  # more was used meanwhile
            self._server.loop.call_at(self._muted_until, self._unmute)
            return
        self.resume("quota")
        self._advance()

    def resume(self, reason: str) -> None:
        if reason in self._pauses:
            self._pauses.discard(reason)
            if not self._pauses and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def end_after_answer(self) -> None:
        """Closes after the current answer."""
        raise NotImplementedError  # where nobody logs in there is no reason to

    def finish(self) -> None:
        """Takes no more requests and closes once all are answered; long polls are dropped.

        Clients match answers by their order. So what came behind a dropped request is dropped with it.
        """
        self.pause("stopping")
        waiting = [slot for slot in self._slots if slot.header.api_key in WAITING_APIS]
        for slot in waiting:
            slot.cancel()
        self._drop_backlog(None if waiting else WAITING_APIS)
        if self.is_idle:
            self.close("")

    def close(self, reason: str) -> None:
        """Closes after flushing; the reason goes to the log."""
        if self.is_closing:
            return
        self.is_closing = True
        if reason:
            log.warning("connection closed", extra={"peer": self.peer, "why": reason})
        self._drop_backlog()
        if self._transport is not None:
            self._transport.close()

    def _drop_backlog(self, apis: Container[int] | None = None) -> None:
        """Forgets requests that were not begun: all of them, or those from the first of some APIs on."""
        kept = 0
        if apis is not None:
            for header, _ in self._backlog:
                if header.api_key in apis:
                    break
                kept += 1
        while len(self._backlog) > kept:
            _, frame = self._backlog.pop()
            self._server.budget.request_done(len(frame))
            self._server.frame_buffers.give(frame)

    def close_idle(self) -> None:
        """Closes an idle connection; unread answers are dropped."""
        if self._unsent_bytes or self._backlog or self.is_closing:
            self.abort()
        else:
            self.close("")

    def abort(self) -> None:
        """Closes at once and drops everything in flight."""
        self.is_closing = True
        self._drop_backlog()
        for slot in self._slots:
            slot.cancel()
        if self._transport is not None:
            self._transport.abort()
