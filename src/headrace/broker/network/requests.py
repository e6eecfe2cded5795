"""The requests of one connection: which may start, and their answers in the order in which they were asked.

Requests are answered one after the other, as Kafka does it, so a client that waits in a long poll cannot pile up more
work. Produce requests alone overlap with each other: their order is kept by the partitions' queues, and producers rely
on pipelining.

There are two roads. A request that needs nothing but what is in memory takes the straight one: it runs where its frame
was received, and is answered where the store's reply or an append wakes it, without a task (`produce/straight.py`,
`fetching/straight.py`). Anything else gets a task, which may wait for whatever it likes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

import msgspec

from headrace.broker.dispatch import CloseConnection
from headrace.broker.logins.workers import TooManyLogins
from headrace.broker.network.wait_timer import WaitTimer
from headrace.wire.apis import FETCH, JOIN_GROUP, PRODUCE, SYNC_GROUP

if TYPE_CHECKING:
    from headrace.broker.network.connection import Connection
    from headrace.broker.network.frame_buffers import Frame
    from headrace.broker.network.server import Server
    from headrace.wire.codec import Pieces
    from headrace.wire.frame import RequestHeader
    from headrace.wire.schema import Payload

log = logging.getLogger(__name__)

WAITING_APIS = frozenset({FETCH, JOIN_GROUP, SYNC_GROUP})
"""Their answers may wait for minutes for what somebody else does."""
_HOLD_REQUESTS = frozenset({"writing", "quota"})
"""Pauses in which what was received already is not begun either."""
_SLICE_BYTES = 128 << 10
"""Of an answer over TLS: more than uvloop holds back until the end of the turn (64 KiB)."""


class RequestSlot(msgspec.Struct, eq=False):
    """A request that was started, and its answer once there is one; responses leave in the order of the slots."""

    header: RequestHeader
    frame: Frame
    size_bytes: int
    began_s: float
    request: Payload | None = None
    """What the frame says, once it was read."""
    pieces: Pieces | None = None
    task: asyncio.Task[None] | None = None
    started: bool = False
    done: bool = False
    is_unsubmitted: bool = False
    """Whether it is a Produce that others must not overtake."""
    on_cancel: Callable[[], None] | None = None
    """Ends a request that waits without a task."""

    def cancel(self) -> None:
        """A task that did not start yet is left alone: cancelled, it would never tell that it ended."""
        if self.task is not None and self.started:
            self.task.cancel()
        elif self.task is None and self.on_cancel is not None:
            self.on_cancel()


class Requests:
    """The part of a connection between whole frames and answers."""

    peer: str

    def __init__(self, server: Server) -> None:
        self.submitting = asyncio.Lock()
        """Held by a Produce until its batches are in the partitions' queues, so that they get there in order."""
        self.unsubmitted = 0
        """Produce requests with a task whose batches are not in the queues yet: none may overtake them."""
        self.now_s = server.loop.time
        """The event loop's clock."""
        self.end_of_turn = server.end_of_turn
        """Callbacks for the end of the current event loop iteration."""
        self.wait_timer = WaitTimer(server.loop)
        """For the one request that waits: only Produce requests overlap."""
        self.last_active = server.loop.time()
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._is_encrypted = False
        self._backlog: deque[tuple[RequestHeader, Frame]] = deque()
        self._slots: deque[RequestSlot] = deque()
        self._answered: list[RequestSlot] = []
        """Those without a task that were answered in this turn."""
        self._pauses: set[str] = set()
        self._unsent_bytes = 0

    def _advance(self) -> None:
        """Starts the next requests: a Produce beside other Produces, anything else alone."""
        limit = self._server.broker.options.pipeline_max
        backlog, slots = self._backlog, self._slots
        while backlog and (not self._pauses or self._pauses.isdisjoint(_HOLD_REQUESTS)):
            if slots and (
                len(slots) >= limit or backlog[0][0].api_key != PRODUCE or slots[-1].header.api_key != PRODUCE
            ):
                break
            self._start(*backlog.popleft())
        if len(backlog) >= limit:
            self.pause("pipeline")
        elif self._pauses and "pipeline" in self._pauses:
            self.resume("pipeline")

    def _start(self, header: RequestHeader, frame: Frame) -> None:
        slot = RequestSlot(header, frame, len(frame), time.perf_counter())
        self._slots.append(slot)
        server = self._server
        connection: Any = self  # as it is: a cast is a call
        if server.held is None:
            try:
                if server.dispatch.go_straight(slot, connection):
                    return
            except Exception:  # as with a task: the transport would take it for a fault of its own
                slot.on_cancel = None
                self.failed(slot)
                self.answered(slot, None)
                return
        if header.api_key == PRODUCE:
            self.unsubmitted += 1
            slot.is_unsubmitted = True
        answer = server.dispatch.answer(slot, connection)
        self.go_on_in_task(slot, answer if server.held is None else _after(server.held, answer))

    def submitted(self, slot: RequestSlot) -> None:
        """A Produce's batches are in the queues, or will never be."""
        if slot.is_unsubmitted:
            slot.is_unsubmitted = False
            self.unsubmitted -= 1

    # -- the road with a task -----------------------------------------------------------------------------------

    def go_on_in_task(self, slot: RequestSlot, work: Coroutine[Any, Any, Pieces | None]) -> None:
        """The answer has to wait for something."""
        slot.task = self._server.loop.create_task(self._answer(slot, work))

    async def _answer(self, slot: RequestSlot, work: Coroutine[Any, Any, Pieces | None]) -> None:
        slot.started = True
        try:
            if self._is_in_vain(slot.header.api_key):
                work.close()
                return
            slot.pieces = await work
        except (CloseConnection, TooManyLogins) as reason:
            self.close(str(reason))
        except asyncio.CancelledError:
            slot.pieces = None
        except Exception:
            self.failed(slot)
        finally:
            self._end(slot)
            self._flush()
            self._advance()

    def _is_in_vain(self, api_key: int) -> bool:
        """Whether the client has gone, or the broker is stopping and will not wait."""
        if self._server.is_stopping:
            return api_key in WAITING_APIS
        return api_key == FETCH and cast("Connection", self).is_closing

    # -- the straight road --------------------------------------------------------------------------------------

    def answered(self, slot: RequestSlot, pieces: Pieces | None) -> None:
        """The answer to a request without a task.

        Answers of one turn leave together at its end. Only then is nobody left who looks at the request's records, so
        that its buffer can be used again. Until then they count as unsent: others of this turn have to leave room.
        """
        slot.pieces = pieces
        if pieces and self._transport is not None:
            size_bytes = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            self._server.answer_room.used_bytes += size_bytes
            self._unsent_bytes += size_bytes
        if not self._answered:
            self.end_of_turn.add(self._go_on)
        self._answered.append(slot)

    def answer_now(self, slot: RequestSlot, pieces: Pieces | None) -> None:
        """The same at the end of a turn."""
        slot.pieces = pieces
        self._end(slot)
        self._flush()
        if self._backlog or self._pauses:
            self._advance()

    def _go_on(self) -> None:
        answered, self._answered = self._answered, []
        for slot in answered:
            self._end(slot)
        self._flush()
        if self._backlog or self._pauses:
            self._advance()

    # -- both ---------------------------------------------------------------------------------------------------

    def failed(self, slot: RequestSlot, error: BaseException | None = None) -> None:
        """An internal error, by default the exception being handled."""
        self._server.count_failure()
        log.error(
            "a request failed; its connection is closed",
            exc_info=error or True,
            extra={"api_key": slot.header.api_key, "version": slot.header.api_version, "peer": self.peer},
        )
        self.close("a request failed")

    def _end(self, slot: RequestSlot) -> None:
        if slot.done:
            return  # it failed half-way, and what was begun of it came to an end too
        slot.done = True
        slot.request = None
        if slot.is_unsubmitted:
            self.submitted(slot)
        server = self._server
        server.requests.took(slot.header.api_key, time.perf_counter() - slot.began_s)
        budget = server.budget
        budget.whole_bytes -= slot.size_bytes
        if budget.waiters:
            budget.wake()
        if not isinstance(slot.frame, bytearray):
            server.frame_buffers.give(slot.frame)

    def _flush(self) -> None:
        """Sends the answers that are due: those before which none is missing, in one write."""
        slots, due = self._slots, None
        while slots and slots[0].done:
            pieces = slots.popleft().pieces
            if pieces:
                due = pieces if due is None else [*due, *pieces]
        if (transport := self._transport) is not None:
            if due and not transport.is_closing():
                if self._is_encrypted:
                    _write_in_slices(transport, due)
                elif len(due) == 1:
                    transport.write(due[0])
                else:
                    transport.writelines(due)
            unsent_bytes = transport.get_write_buffer_size()
            if unsent_bytes != self._unsent_bytes:
                self._server.answer_room.used_bytes += unsent_bytes - self._unsent_bytes
                self._unsent_bytes = unsent_bytes
        self.last_active = self._server.loop.time()
        if not slots and not self._backlog and (self._pauses or transport is None or self._server.is_stopping):
            self._rest()

    @property
    def is_idle(self) -> bool:
        """Whether all requests are answered."""
        return not self._slots and not self._backlog

    @property
    def is_waited_for(self) -> bool:
        """Whether no request is in progress: it is the client's turn to send or to read."""
        return not self._slots

    # -- what a connection does ---------------------------------------------------------------------------------

    def _rest(self) -> None:
        raise NotImplementedError

    def pause(self, reason: str) -> None:
        raise NotImplementedError

    def resume(self, reason: str) -> None:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        raise NotImplementedError


def _write_in_slices(transport: asyncio.Transport, pieces: Pieces) -> None:
    """TLS encrypts all of a write before any of it is sent. In slices the client decrypts the first ones meanwhile."""
    small: Pieces = []
    for piece in pieces:
        if len(piece) <= _SLICE_BYTES:
            small.append(piece)
            continue
        view = memoryview(piece)
        for at in range(0, len(view), _SLICE_BYTES):
            transport.writelines([*small, view[at : at + _SLICE_BYTES]])
            small = []
    if small:
        transport.writelines(small)


async def _after(released: asyncio.Event, work: Coroutine[Any, Any, Pieces | None]) -> Pieces | None:
    """The same once requests are let through."""
    try:
        await released.wait()
        return await work
    finally:
        work.close()
