"""How a batch enters a partition in either format: a queue, one append in flight, and resolving its outcome.

One append in flight makes small producers cheap: batches that arrive meanwhile are joined into the next one. After an
append with unknown outcome nothing is appended until it is resolved: the store is read again and shows whether it was
applied (each append carries a token of its writer). If it was not, it is resent in a way that Redis accepts at most
once, even if the first copy still arrives. How that works is up to the formats: `log/writer.py` and `stream/writer.py`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from headrace.store.partition.pending import Appended, AwaitedBatch, Pending, are_awaited
from headrace.store.partition.sequences.producers import Coming
from headrace.store.partition.sequences.verification import Verification, continues_transaction
from headrace.store.redis.errors import PartitionGone, RedisError, StoreAway, StoreError
from headrace.store.redis.wire import Then
from headrace.store.shared_work import WorkInParts
from headrace.wire.batch import BatchHeader
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition

__all__ = ["Appended", "Appender", "Flight", "Pending"]

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05
_LOOK_S = 0.25
"""How long a look may take before overdue batches are answered."""


class Flight(Protocol):
    """The one append in flight, or with an unknown outcome."""

    @property
    def pendings(self) -> list[Pending]: ...


F = TypeVar("F", bound=Flight)


class Appender(ABC, Generic[F]):
    """The queue of one partition, and the append in flight."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._name = secrets.token_hex(6)
        self._numbers = count()
        self._queue: deque[Pending] = deque()
        self._flight: F | None = None
        self._sendings = self._sent_on = 0
        """How often something was sent, and on which timeline: a reply to another time has nothing to say."""
        self._is_due = self._is_id_refused = False
        self._recovering: asyncio.Task[None] | None = None
        self._verifying: asyncio.Task[None] | None = None

    async def pack(self, batch: memoryview, header: BatchHeader, limit_bytes: int) -> bytes:
        """A batch's records as the format stores them, where that is another form; they take `limit_bytes` at most."""
        return b""

    def submit(
        self,
        batch: memoryview,
        header: BatchHeader,
        timeout_s: float,
        packed: bytes = b"",
        verification: Verification | None = None,
    ) -> asyncio.Future[Appended]:
        """Queues a batch and what `pack` made of it; its bytes are stamped in place, so they are the writer's now."""
        loop = asyncio.get_running_loop()
        size_bytes, deadline, outcome = max(len(batch), len(packed)), loop.time() + timeout_s, loop.create_future()
        self.enqueue(AwaitedBatch(batch, header, deadline, size_bytes, packed, verification, outcome=outcome))
        return outcome

    def enqueue(self, pending: Pending) -> None:
        """Queues a batch; its outcome is told in the turn in which the store's answer arrives."""
        self._queue.append(pending)
        if self._flight is None and not self._is_due and self._verifying is None:
            self._is_due = True
            self._partition.context.end_of_turn.add(self._begin)

    async def drain(self) -> None:
        """Returns once all that is queued now was answered."""
        for pending in [*(self._flight.pendings if self._flight else ()), *self._queue]:
            await pending.answered()

    @property
    def is_idle(self) -> bool:
        """Whether the queue is empty and no append is in flight."""
        return not self._queue and self._flight is None and self._recovering is None and self._verifying is None

    @property
    def partition(self) -> Partition:
        """The partition of this queue."""
        return self._partition

    @property
    def records_in_flight(self) -> int:
        return sum(one.header.count for one in self._flight.pendings) if self._flight else 0

    @property
    def queued(self) -> int:
        """Batches that wait for their append."""
        return len(self._queue)

    # -- what a format does -------------------------------------------------------------------------------------

    @abstractmethod
    def _flight_of(self, taken: list[Pending]) -> F:
        """An append of batches that were checked."""

    @abstractmethod
    def _transmit(self, flight: F, then: Then) -> None:
        """Sends an append; `then` is told of its reply."""

    @abstractmethod
    def _took(self, flight: F, reply: Any) -> bool:
        """Handles a reply without an error: if the append is in the log, its batches are answered."""

    @abstractmethod
    def _prepare_resend(self, flight: F) -> F | None:
        """The append to send again after the store was read and does not have it; None to check its batches again."""

    async def _settle(self) -> None:
        """Further work after the store was read, before the next append."""

    # -- sending ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The first append after a rest: at the end of the event loop's turn, so that it takes all that came in it."""
        self._is_due = False
        if self._flight is None and self._recovering is None and self._verifying is None:
            self._partition.link.hold_back(self._partition.context.end_of_turn)
            self._pump()

    def _pump(self) -> None:
        """Sends the next append, if there is one and the cached state of the partition is valid."""
        if not self._queue:
            return
        if not self._partition.may_append():
            self._recover()
            return
        self._send_next(just_looked=False)

    def _send_next(self, just_looked: bool) -> None:
        taken = self._join(just_looked)
        if taken:
            self._send(self._flight_of(taken))
        elif self._queue and not self._queue[0].is_answered and self._is_to_verify(self._queue[0], {}):
            self._verifying = asyncio.create_task(self._verify(), name=f"verify {self._partition!r}")
        elif self._queue:
            # The first batch is about to be answered with an error: not from memory alone.
            self._partition.doubt()
            self._recover()

    def _join(self, just_looked: bool) -> list[Pending]:
        """Takes batches off the queue, checked from the start."""
        size, limit = 0, self._partition.options.append_entry_bytes
        queue, producers = self._queue, self._partition.producers
        taken: list[Pending] = []
        coming: dict[int, Coming] = {}
        while queue:
            first = queue[0]
            if first.is_answered:
                queue.popleft()  # given up: it must not count as its producer's last batch
                continue
            if taken and size + first.size_bytes > limit:
                break
            if first.verification is not None and self._is_to_verify(first, coming):
                break
            is_in_order = first.header.producer_id < 0 or producers.is_next(first.header, coming)
            if not is_in_order and not self._check_producer(first, coming, just_looked):
                if queue and queue[0] is first:
                    break
                continue
            queue.popleft()
            size += first.size_bytes
            taken.append(first)
        return taken

    def _check_producer(self, first: Pending, coming: dict[int, Coming], just_looked: bool) -> bool:
        """Whether the batch may be appended; a repeated or wrong one is answered and leaves the queue.

        If the verdict depends on a batch of the append being joined, it waits in the queue until that one is in the
        log; if it is an error, until the log was looked at: another writer may have taken the batch before this one.
        """
        header, producers = first.header, self._partition.producers
        if (known := producers.find_duplicate(header)) is not None:
            self._queue.popleft()
            first.resolve(Appended(known.base_offset, duplicate=True))
            return False
        is_coming = header.producer_id in coming
        try:
            if header.is_control:
                if is_coming:
                    return False  # what it ends has to be in the log
                assert first.verification is not None
                producers.check_marker(header, first.verification)
            else:
                producers.check(header, coming)
        except KafkaError as error:
            if is_coming or not just_looked:
                return False
            self._queue.popleft()
            first.fail(error)
            return False
        _will_come(header, coming)
        return True

    # -- transactions -------------------------------------------------------------------------------------------

    def _is_to_verify(self, first: Pending, coming: dict[int, Coming]) -> bool:
        """Whether the state of its transaction has to be asked for before the batch goes into the log."""
        if first.verification is None or first.verification.holds(self._partition, first.header):
            return False
        header, before = first.header, coming.get(first.header.producer_id)
        is_open = (before is not None and before.is_open(header)) or continues_transaction(self._partition, header)
        return header.is_control or not (is_open or self._partition.producers.find_duplicate(header))

    def _is_verified(self, flight: F) -> bool:
        """Whether the verified transactions of an append are still valid: not on another server."""
        coming: dict[int, Coming] = {}
        for pending in flight.pendings:
            if self._is_to_verify(pending, coming):
                return False
            if pending.header.producer_id >= 0:
                _will_come(pending.header, coming)
        return True

    async def _verify(self) -> None:
        """Verifies the batch at the head of the queue, which blocks the others meanwhile; then goes on."""
        first = self._queue[0]
        assert first.verification is not None
        try:
            await first.verification.ask(self._partition, first.header)
        except KafkaError as error:
            first.fail(error)
        except Exception:
            log.exception("a transaction was not verified", extra={"partition": repr(self._partition)})
            first.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the transaction could not be verified"))
        finally:
            self._verifying = None
        if self._flight is None and self._recovering is None:
            self._pump()

    def _send(self, flight: F) -> None:
        self._flight = flight
        self._sendings, self._sent_on = self._sendings + 1, self._partition.link.timeline
        try:
            self._transmit(flight, partial(self._answered, self._sendings))
        except StoreAway:
            self._recover()
        except Exception:
            self._lose_track(flight)
        else:
            for pending in flight.pendings:
                pending.sent = True

    def _answered(self, sending: int, reply: Any, error: Exception | None) -> None:
        flight = self._flight
        if flight is None or sending != self._sendings:
            return
        try:
            is_taken = error is None and self._sent_on == self._partition.link.timeline and self._took(flight, reply)
        except Exception:
            self._lose_track(flight)
            return
        if is_taken:
            self._partition.shard.memory.appends.passed()
            if self._queue:
                self._pump()
            return
        if isinstance(error, RedisError) and not error.is_refused_id:
            self._refused(error)
            return
        # Unknown, refused, no stream, or another server's: reading tells what became of it.
        self._is_id_refused = isinstance(error, RedisError)
        self._partition.doubt()
        self._recover()

    def _lose_track(self, flight: F) -> None:
        """A fault of ours: the next append looks first, and is not held up."""
        log.exception("an append failed", extra={"partition": repr(self._partition)})
        self._flight = flight
        self._fail_all(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the outcome of the batch is unknown"))
        self._partition.doubt()

    def _refused(self, error: RedisError) -> None:
        """Redis said no to any write: wait if that passes, else say so. A copy sent before may still be in the log."""
        if error.passes_by_itself:
            self._partition.doubt()
            self._recover(pause_s=RETRY_PAUSE_S)
        else:
            self._partition.shard.memory.note_trouble(error)
            self._fail_all(error)

    # -- trouble ------------------------------------------------------------------------------------------------

    def _recover(self, pause_s: float = 0) -> None:
        if self._recovering is None:
            name = f"recover {self._partition!r}"
            self._recovering = asyncio.create_task(self._recover_until_sure(pause_s), name=name)

    async def _recover_until_sure(self, pause_s: float) -> None:
        """Waits for the store, resolves the unknown outcome, then goes on; expired batches are given up."""
        partition = self._partition
        look = WorkInParts(partition.confirm, f"look at {partition!r}")
        try:
            while self._give_up_overdue():
                await asyncio.sleep(pause_s)
                pause_s = RETRY_PAUSE_S
                try:
                    await partition.link.wait_up(RETRY_PAUSE_S)
                    if not await look.has_ended(_LOOK_S):
                        continue
                    await self._settle()
                    break
                except PartitionGone as error:
                    self._fail_all(error)
                except RedisError as error:
                    if not error.passes_by_itself:
                        partition.shard.memory.note_trouble(error)
                        self._fail_all(error)
                except (StoreError, TimeoutError):
                    continue
        except Exception:
            log.exception("appending stopped", extra={"partition": repr(partition)})
            self._fail_all(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"appending to {partition!r} failed"))
        finally:
            self._recovering = None
            look.cancel()
        self._resume()

    def _resume(self) -> None:
        """The store was read: an append still in flight is not there."""
        flight = self._flight
        if not self._partition.is_in_step or self._partition.nodes.is_away:
            if flight is not None or self._queue:
                self._recover(pause_s=RETRY_PAUSE_S)
            return
        may_resend = flight is not None and are_awaited(flight.pendings) and self._is_verified(flight)
        if flight is not None and may_resend and (again := self._prepare_resend(flight)) is not None:
            self._send(again)
            return
        if flight is not None:
            # Its place is taken, nobody waits for it, or another server may have forgotten its transactions: every
            # batch is checked again from the start. In the last case its first copy cannot arrive any more.
            self._flight = None
            for pending in flight.pendings:
                pending.sent = False
            self._queue.extendleft(reversed(flight.pendings))
        self._send_next(just_looked=True)

    def _give_up_overdue(self) -> bool:
        """Answers expired batches; returns whether any are left.

        What a producer sent behind such a batch is given up with it: it must not go into the log before it.
        """
        now = asyncio.get_running_loop().time()
        given_up: set[int] = set()
        for pending in [*(self._flight.pendings if self._flight else ()), *self._queue]:
            producer_id = pending.header.producer_id
            if (pending.deadline <= now or producer_id in given_up) and not pending.is_answered:
                code = ErrorCode.REQUEST_TIMED_OUT if pending.sent else ErrorCode.KAFKA_STORAGE_ERROR
                pending.fail(KafkaError(code, "the store did not come back in time"))
            if pending.is_answered and producer_id >= 0:
                given_up.add(producer_id)
        self._queue = deque(pending for pending in self._queue if not pending.is_answered)
        if self._flight is not None and not are_awaited(self._flight.pendings):
            self._flight = None  # should it still arrive, the next append is refused and finds it
        return self._flight is not None or bool(self._queue)

    async def close(self) -> None:
        """Answers everything still queued; no more appends."""
        for task in (self._recovering, self._verifying):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._fail_all(StoreAway("the broker is stopping"))

    def _fail_all(self, error: KafkaError) -> None:
        waiting = [*(self._flight.pendings if self._flight else ()), *self._queue]
        self._flight, self._queue = None, deque()
        for pending in waiting:
            pending.fail(error)


def _will_come(header: BatchHeader, coming: dict[int, Coming]) -> None:
    in_transaction = header.is_transactional and not header.is_control
    coming[header.producer_id] = Coming(header.producer_epoch, header.last_sequence, in_transaction)
