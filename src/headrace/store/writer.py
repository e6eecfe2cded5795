"""Appending to one partition: optimistic, without a lock or a script (docs/decisions/003).

The stream's own rule does the work: XADD refuses an id that is not above the last one, so of two writers exactly one
wins. That holds with one append in flight, which is also what makes small producers cheap: whatever arrives meanwhile
is joined into the next entry.

After an append whose outcome is unknown nothing is appended until it is known. Each entry carries a token of its
writer; the store is read again, and the entry is ours if it carries ours. If it is not there it is sent again, the
same bytes under the same id: should the first copy still arrive, one of the two is refused. A refused entry therefore
may be ours too, and is looked for in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.store import recovery
from headrace.store.entries import Entry, xadd
from headrace.store.errors import PartitionGone, RedisError, StoreAway, StoreError
from headrace.wire.batch import BatchHeader, stamp
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition import Partition

log = logging.getLogger(__name__)

_RETRY_PAUSE_S = 0.05
_LOOK_S = 0.25
"""How long a look may take before overdue batches are answered."""


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

    @property
    def is_awaited(self) -> bool:
        """Whether anybody still waits for one of its batches."""
        return any(not pending.future.done() for pending in self.pendings)


class Writer:
    """The queue of one partition, and the append in flight."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._name = secrets.token_hex(6)
        self._numbers = count()
        self._queue: deque[_Pending] = deque()
        self._flight: _Flight | None = None
        self._reply: asyncio.Future[Any] | None = None
        self._is_id_refused = False
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
        self._send_next(just_looked=False)

    def _send_next(self, just_looked: bool) -> None:
        flight = self._join(just_looked)
        if flight is not None:
            self._send(flight)
        elif self._queue:
            # The first batch is about to be answered with an error: not from memory alone.
            self._partition.doubt()
            self._recover()

    def _join(self, just_looked: bool) -> _Flight | None:
        """Takes batches off the queue, checked from the start and stamped with their offsets."""
        partition = self._partition
        offset, size = partition.end, 0
        limit = partition.store.options.append_entry_bytes
        taken: list[_Pending] = []
        pending: dict[int, tuple[int, int]] = {}
        while self._queue:
            first = self._queue[0]
            if first.future.done():
                self._queue.popleft()  # given up: it must not count as its producer's last batch
                continue
            if taken and size + len(first.batch) > limit:
                break
            if first.header.producer_id >= 0 and not self._check_producer(first, pending, just_looked):
                if self._queue and self._queue[0] is first:
                    break
                continue
            self._queue.popleft()
            stamp(first.batch, 0, offset, partition.leader_epoch)
            offset += first.header.count
            size += len(first.batch)
            taken.append(first)
        if not taken:
            return None
        data = bytes(taken[0].batch) if len(taken) == 1 else b"".join([p.batch for p in taken])
        token = f"{self._name}{next(self._numbers):x}".encode()
        return _Flight(Entry(partition.end, offset, data, token), taken)

    def _check_producer(self, first: _Pending, pending: dict[int, tuple[int, int]], just_looked: bool) -> bool:
        """Whether the batch may be appended; a repeated or wrong one is answered and leaves the queue.

        If the verdict depends on a batch of the entry being joined, it waits in the queue until that one is in the
        log; if it is an error, until the log was looked at: another writer may have taken the batch before this one.
        """
        header, producers = first.header, self._partition.producers
        if (known := producers.find_duplicate(header)) is not None:
            self._queue.popleft()
            _resolve(first, Appended(known.base_offset, duplicate=True))
            return False
        try:
            producers.check(header, pending)
        except KafkaError as error:
            if header.producer_id in pending or not just_looked:
                return False
            self._queue.popleft()
            _fail(first, error)
            return False
        pending[header.producer_id] = (header.producer_epoch, header.last_sequence)
        return True

    def _send(self, flight: _Flight) -> None:
        self._flight = flight
        partition = self._partition
        try:
            reply = self._reply = partition.store.link.send_chunks(xadd(partition.keys.log, flight.entry))
        except StoreAway:
            self._recover()
            return
        for pending in flight.pendings:
            pending.sent = True
        reply.add_done_callback(self._answered)

    def _answered(self, reply: asyncio.Future[Any]) -> None:
        error = reply.exception()
        flight = self._flight
        if flight is None or reply is not self._reply:
            return
        if error is None and reply.result() is not None:
            self._succeed(flight)
            self._pump()
            return
        if isinstance(error, RedisError) and not error.is_refused_id:
            self._refused(error)
            return
        # Unknown, refused, or no stream: reading tells what became of it.
        self._is_id_refused = isinstance(error, RedisError)
        self._partition.doubt()
        self._recover()

    def _refused(self, error: RedisError) -> None:
        """Redis said no to any write: wait if that passes, else say so. A copy sent before may still be in the log."""
        if error.passes_by_itself:
            self._partition.doubt()
            self._recover(pause_s=_RETRY_PAUSE_S)
        else:
            self._partition.store.note_trouble(error)
            self._fail_all(error)

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
        partition.store.announcements.appended(partition)

    def seen(self, entry: Entry) -> bool:
        """Told of an entry met while reading: whether it is the one in flight, which then is answered."""
        flight = self._flight
        if flight is None or flight.entry.base != entry.base or flight.entry.token != entry.token:
            return False
        self._succeed(flight)
        return True

    def _recover(self, pause_s: float = 0) -> None:
        if self._recovering is None:
            work = self._recover_until_sure(pause_s)
            self._recovering = asyncio.create_task(work, name=f"recover {self._partition!r}")

    async def _recover_until_sure(self, pause_s: float) -> None:
        """Waits for the store, settles what is unknown, then goes on; gives up batches whose time is over."""
        try:
            while self._give_up_overdue():
                await asyncio.sleep(pause_s)
                pause_s = _RETRY_PAUSE_S
                try:
                    await self._partition.store.link.wait_up(_RETRY_PAUSE_S)
                    async with asyncio.timeout(_LOOK_S):
                        await self._partition.confirm()
                    await self._step_over_what_is_not_there()
                    break
                except TimeoutError:
                    continue  # the look goes on, and may be waited for again
                except PartitionGone as error:
                    self._fail_all(error)
                except RedisError as error:
                    if not error.passes_by_itself:
                        self._partition.store.note_trouble(error)
                        self._fail_all(error)
                except StoreError:
                    continue
        except Exception:
            log.exception("appending stopped", extra={"partition": repr(self._partition)})
            self._fail_all(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"appending to {self._partition!r} failed"))
        finally:
            self._recovering = None
        self._resume()

    async def _step_over_what_is_not_there(self) -> None:
        """An id was refused and no entry is in its place: somebody removed the last ones by hand."""
        flight, refused, self._is_id_refused = self._flight, self._is_id_refused, False
        if refused and flight is not None and flight.entry.base == self._partition.end:
            await recovery.go_behind_last_id(self._partition)

    def _resume(self) -> None:
        """The store was read: an entry still in flight is not there."""
        partition, flight = self._partition, self._flight
        if not partition.is_in_step:
            if flight is not None or self._queue:
                self._recover(pause_s=_RETRY_PAUSE_S)
            return
        if flight is not None and partition.end == flight.entry.base and flight.is_awaited:
            self._send(self._stamped_again(flight))
            return
        if flight is not None:
            # Its place is taken, or nobody waits for it: every batch is checked again from the start.
            self._flight = None
            for pending in flight.pendings:
                pending.sent = False
            self._queue.extendleft(reversed(flight.pendings))
        self._send_next(just_looked=True)

    def _stamped_again(self, flight: _Flight) -> _Flight:
        """The entry with the leader epoch of now: the same bytes, unless the store lost records meanwhile."""
        base, end, _, token = flight.entry
        offset = base
        for pending in flight.pendings:
            stamp(pending.batch, 0, offset, self._partition.leader_epoch)
            offset += pending.header.count
        return _Flight(Entry(base, end, b"".join([p.batch for p in flight.pendings]), token), flight.pendings)

    def _give_up_overdue(self) -> bool:
        """Answers the batches whose time is over; whether any are left to care for.

        What a producer sent behind such a batch is given up with it: it must not go into the log before it.
        """
        now = asyncio.get_running_loop().time()
        given_up: set[int] = set()
        for pending in [*(self._flight.pendings if self._flight else ()), *self._queue]:
            producer_id = pending.header.producer_id
            if (pending.deadline <= now or producer_id in given_up) and not pending.future.done():
                code = ErrorCode.REQUEST_TIMED_OUT if pending.sent else ErrorCode.KAFKA_STORAGE_ERROR
                _fail(pending, KafkaError(code, "the store did not come back in time"))
            if pending.future.done() and producer_id >= 0:
                given_up.add(producer_id)
        self._queue = deque(pending for pending in self._queue if not pending.future.done())
        if self._flight is not None and not self._flight.is_awaited:
            # Should it still arrive, the next append is refused and finds it.
            self._flight = None
        return self._flight is not None or bool(self._queue)

    async def close(self) -> None:
        """Answers what still waits; nothing is appended any more."""
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.gather(self._recovering, return_exceptions=True)
        self._fail_all(StoreAway("the broker stops"))

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
