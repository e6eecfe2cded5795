"""Appending to one partition: optimistic, without a lock or a script (docs/decisions/003).

The stream's own rule does the work: XADD refuses an id that is not above the last one, so of two writers exactly one
wins. That holds with one append in flight, which is also what makes small producers cheap: whatever arrives meanwhile
is joined into the next entry.

After an append whose outcome is unknown nothing is appended until it is known. Each entry carries a token of its
writer; the store is read again, and the entry is ours if it carries ours. If it is not there it is sent again, the
same bytes under the same id: should the first copy still arrive, one of the two is refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.store.entries import Entry, xadd
from headrace.store.errors import OutcomeUnknown, PartitionGone, RedisError, StoreAway, StoreError
from headrace.wire.batch import BatchHeader, stamp
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition import Partition

log = logging.getLogger(__name__)

_WRITER = secrets.token_hex(4)
_numbers = count()
_RETRY_PAUSE_S = 0.05


class Appended(NamedTuple):
    """Where a batch is in the log, now or since it was sent before."""

    base_offset: int
    duplicate: bool = False


class _Pending:
    """A batch on its way into the log."""

    __slots__ = ("batch", "deadline", "future", "header", "sent")

    def __init__(
        self, batch: memoryview, header: BatchHeader, future: asyncio.Future[Appended], deadline: float
    ) -> None:
        self.batch = batch
        self.header = header
        self.future = future
        self.deadline = deadline
        self.sent = False


class _Flight(NamedTuple):
    """The one entry whose answer is awaited, or unknown."""

    entry: Entry
    pendings: list[_Pending]


class Writer:
    """The queue of one partition, and the append in flight."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._queue: deque[_Pending] = deque()
        self._flight: _Flight | None = None
        self._recovering: asyncio.Task[None] | None = None

    def submit(self, batch: memoryview, header: BatchHeader, timeout_s: float) -> asyncio.Future[Appended]:
        """Queues a batch; its bytes are stamped in place, so they belong to the writer from now on."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        self._queue.append(_Pending(batch, header, future, loop.time() + timeout_s))
        if self._flight is None and self._recovering is None:
            self._pump()
        return future

    @property
    def is_idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self._queue and self._flight is None and self._recovering is None

    def _pump(self) -> None:
        """Sends the next entry, if there is one and what is known of the partition can be relied on."""
        if not self._queue:
            return
        if not self._partition.is_confirmed:
            self._recover()
            return
        flight = self._join()
        if flight is not None:
            self._send(flight)

    def _join(self) -> _Flight | None:
        """Takes batches off the queue, checked from the start and stamped with their offsets."""
        partition = self._partition
        offset, size = partition.end, 0
        limit = partition.store.options.append_entry_bytes
        taken: list[_Pending] = []
        pending: dict[int, tuple[int, int]] = {}
        while self._queue:
            first = self._queue[0]
            if taken and size + len(first.batch) > limit:
                break
            if first.header.producer_id >= 0 and not self._check_producer(first, pending):
                if self._queue and self._queue[0] is first:
                    break
                continue
            self._queue.popleft()
            if first.future.done():
                continue
            stamp(first.batch, 0, offset, partition.leader_epoch)
            offset += first.header.count
            size += len(first.batch)
            taken.append(first)
        if not taken:
            return None
        data = bytes(taken[0].batch) if len(taken) == 1 else b"".join([p.batch for p in taken])
        token = f"{_WRITER}{next(_numbers):x}".encode()
        return _Flight(Entry(partition.end, offset, data, token), taken)

    def _check_producer(self, first: _Pending, pending: dict[int, tuple[int, int]]) -> bool:
        """Whether the batch may be appended; a repeated or wrong one is answered and leaves the queue.

        If the verdict depends on a batch of the entry being joined, it waits in the queue until that one is in the log.
        """
        header, producers = first.header, self._partition.producers
        if (known := producers.find_duplicate(header)) is not None:
            self._queue.popleft()
            _resolve(first, Appended(known.base_offset, duplicate=True))
            return False
        try:
            producers.check(header, pending)
        except KafkaError as error:
            if header.producer_id in pending:
                return False
            self._queue.popleft()
            _fail(first, error)
            return False
        pending[header.producer_id] = (header.producer_epoch, header.last_sequence)
        return True

    def _send(self, flight: _Flight) -> None:
        self._flight = flight
        for pending in flight.pendings:
            pending.sent = True
        partition = self._partition
        try:
            reply = partition.store.link.send_chunks(xadd(partition.keys.log, flight.entry))
        except StoreAway:
            self._recover()
            return
        reply.add_done_callback(self._answered)

    def _answered(self, reply: asyncio.Future[Any]) -> None:
        error = reply.exception()
        flight = self._flight
        if flight is None:
            return
        if error is None and reply.result() is not None:
            self._succeed(flight)
            self._pump()
            return
        if error is None:
            error = PartitionGone(repr(self._partition))
        if not isinstance(error, StoreError):
            raise error
        if not isinstance(error, OutcomeUnknown):
            # Redis said no: nothing was appended, and every batch is checked again from the start.
            self._flight = None
            self._queue.extendleft(reversed(flight.pendings))
        if isinstance(error, RedisError) and not error.is_refused_id and not error.passes_by_itself:
            self._partition.store.note_trouble(error)
            self._fail_all(error)
            return
        self._partition.doubt()
        self._recover()

    def _succeed(self, flight: _Flight) -> None:
        self._flight = None
        partition = self._partition
        base, max_timestamp, now_ms = flight.entry.base, -1, partition.store.now_ms()
        for pending in flight.pendings:
            header = pending.header
            partition.producers.add(header, base, now_ms)
            max_timestamp = max(max_timestamp, header.max_timestamp)
            _resolve(pending, Appended(base))
            base += header.count
        partition.count(flight.entry, max_timestamp)
        partition.tell_watchers()

    def seen(self, entry: Entry) -> bool:
        """Told of an entry met while reading: whether it is the one in flight, which then is answered."""
        flight = self._flight
        if flight is None or flight.entry.base != entry.base or flight.entry.token != entry.token:
            return False
        self._succeed(flight)
        return True

    def _recover(self) -> None:
        if self._recovering is None:
            self._recovering = asyncio.create_task(self._recover_until_sure(), name=f"recover {self._partition!r}")

    async def _recover_until_sure(self) -> None:
        """Waits for the store, settles what is unknown, then goes on; gives up batches whose time is over."""
        try:
            while self._give_up_overdue():
                try:
                    await self._partition.store.link.wait_up(_RETRY_PAUSE_S)
                    await self._partition.confirm()
                    break
                except PartitionGone as error:
                    self._flight = None
                    self._fail_all(error)
                    return
                except RedisError as error:
                    if not error.passes_by_itself:
                        self._partition.store.note_trouble(error)
                        self._fail_all(error)
                        return
                    await asyncio.sleep(_RETRY_PAUSE_S)
                except StoreError:
                    await asyncio.sleep(_RETRY_PAUSE_S)
        finally:
            self._recovering = None
        self._resume()

    def _resume(self) -> None:
        """The store was read: an entry still in flight is not there."""
        flight = self._flight
        if flight is None:
            self._pump()
            return
        alive = any(not pending.future.done() for pending in flight.pendings)
        if self._partition.is_confirmed and alive and self._partition.end == flight.entry.base:
            self._send(flight)
            return
        self._flight = None
        self._queue.extendleft(reversed(flight.pendings))
        self._pump()

    def _give_up_overdue(self) -> bool:
        """Answers the batches whose time is over; whether any are left to care for."""
        now = asyncio.get_running_loop().time()
        waiting = [*(self._flight.pendings if self._flight else ()), *self._queue]
        for pending in waiting:
            if pending.deadline <= now and not pending.future.done():
                code = ErrorCode.REQUEST_TIMED_OUT if pending.sent else ErrorCode.KAFKA_STORAGE_ERROR
                _fail(pending, KafkaError(code, "the store did not come back in time"))
        self._queue = deque(pending for pending in self._queue if not pending.future.done())
        if self._flight is not None and all(p.future.done() for p in self._flight.pendings):
            # Nobody waits for it any more. Should it still arrive, the next append is refused and finds it.
            self._flight = None
        return self._flight is not None or bool(self._queue)

    def _fail_all(self, error: KafkaError) -> None:
        waiting = [*(self._flight.pendings if self._flight else ()), *self._queue]
        self._flight = None
        self._queue.clear()
        for pending in waiting:
            _fail(pending, error)


def _resolve(pending: _Pending, result: Appended) -> None:
    if not pending.future.done():
        pending.future.set_result(result)


def _fail(pending: _Pending, error: KafkaError) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
        pending.future.exception()
