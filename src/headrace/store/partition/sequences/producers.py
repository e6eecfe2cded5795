"""Producers with ids: their last sequences, and their open transactions.

The rules are Kafka's: the last five batches of a producer are remembered and answered with their original offset; a
batch must follow the last one without a gap; a new epoch starts at 0; an unknown or forgotten producer may start
anywhere, unless its batch is part of a transaction, but not at once (`gaps.py`). A transaction is open from
its first batch to its marker; the log is stable up to the first batch of the oldest open transaction. A marker that is
written again ends nothing: behind the first one there may be the next transaction.

The state follows from the log: it advances once a batch is in the log, never before, and a snapshot in Redis only saves
reading the log again.
"""

from __future__ import annotations

import msgspec

from headrace.store.partition.sequences.aborted import Aborted, AbortedList
from headrace.store.partition.sequences.gaps import SequenceGaps, Skip, is_ahead
from headrace.store.partition.sequences.verification import Moment, Verification
from headrace.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.wire.control import EndMarker
from headrace.wire.errors import ErrorCode, KafkaError

KEPT_BATCHES = 5
NO_MARKER = -1
_SEQUENCE_MASK = (1 << 31) - 1


class SequencedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that is in the log."""

    first: int
    last: int
    base_offset: int
    seen_ms: int


class KnownProducer(msgspec.Struct, array_like=True):
    """The state of one producer in one partition. After a marker it may have no batches."""

    epoch: int
    batches: list[SequencedBatch]
    open_from: int = -1
    """The first offset of its open transaction."""
    marker: int = NO_MARKER
    """The offset of the last marker."""
    coordinator_epoch: int = -1
    """Epoch of the coordinator that wrote the last marker."""
    marker_ms: int = 0
    ended: int = 0
    """The number of the last transaction that ended with this epoch, if that is known."""
    committed: bool = False

    @property
    def last_seen_ms(self) -> int:
        return max(self.batches[-1].seen_ms if self.batches else 0, self.marker_ms)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last if self.batches else -1

    @property
    def last_base(self) -> int:
        """Where its last batch, or marker, is."""
        return max(self.batches[-1].base_offset if self.batches else -1, self.marker)


class Coming(msgspec.Struct, frozen=True):
    """A producer's last queued batch before the one being checked."""

    epoch: int
    last: int
    in_transaction: bool

    def is_open(self, header: BatchHeader) -> bool:
        """Whether a batch behind it is part of its transaction."""
        return self.in_transaction and self.epoch == header.producer_epoch


class ProducerSnapshot(msgspec.Struct):
    """The producers as of `offset`: all batches below it are counted."""

    offset: int
    producers: dict[int, KnownProducer]


class Producers:
    """The producers of one partition."""

    def __init__(self, gaps: SequenceGaps | None = None) -> None:
        self.by_id: dict[int, KnownProducer] = {}
        self.open: dict[int, int] = {}
        """Producer -> the first offset of its open transaction, in the order of these offsets."""
        self._verified: dict[int, tuple[int, Moment]] = {}
        """Producer -> the epoch whose transaction was last verified, and until when that holds."""
        self.aborted = AbortedList()
        self.gaps = gaps or SequenceGaps()

    def load(self, snapshot: bytes | None, aborted: AbortedList | None = None) -> int:
        """Takes a stored snapshot; returns the offset from which the log has to be read on."""
        self.aborted = aborted if aborted is not None else AbortedList()
        if snapshot is None:
            return 0
        loaded = msgspec.json.decode(snapshot, type=ProducerSnapshot)
        self.by_id = loaded.producers
        began = ((known.open_from, key) for key, known in self.by_id.items() if known.open_from >= 0)
        self.open = {key: first for first, key in sorted(began)}
        return loaded.offset

    def snapshot(self, offset: int) -> bytes:
        """The state as it is stored."""
        return msgspec.json.encode(ProducerSnapshot(offset, self.by_id))

    def first_open(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self.open.values()), None)

    def last_marker(self, producer_id: int) -> int:
        """The offset of a producer's last marker: until it changes, a verification of its transaction holds."""
        known = self.by_id.get(producer_id)
        return known.marker if known is not None else NO_MARKER

    # -- checks -------------------------------------------------------------------------------------------------

    def find_duplicate(self, header: BatchHeader) -> SequencedBatch | None:
        """The batch in the log that this one repeats."""
        known = self.by_id.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch or header.is_control:
            return None
        for batch in known.batches:
            if batch.first == header.base_sequence and batch.last == header.last_sequence:
                return batch
        return None

    def is_in_transaction(self, header: BatchHeader) -> bool:
        """Whether a batch is part of a transaction that is open here.

        One of a later epoch is not: the marker of the open one is still to come, and would end the wrong one.
        """
        known = self.by_id.get(header.producer_id)
        return header.producer_id in self.open and known is not None and known.epoch == header.producer_epoch

    def verify(self, header: BatchHeader, moment: Moment) -> None:
        """A producer's transaction, of which this batch is, was verified."""
        self._verified[header.producer_id] = header.producer_epoch, moment

    def is_verified(self, header: BatchHeader, moment: Moment) -> bool:
        """Whether that was done for the transaction of this batch, and still holds."""
        return self._verified.get(header.producer_id) == (header.producer_epoch, moment)

    def has_left_over(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of an earlier epoch is open."""
        known = self.by_id.get(producer_id)
        return producer_id in self.open and known is not None and known.epoch < epoch

    def is_next(self, header: BatchHeader, coming: dict[int, Coming]) -> bool:
        """Whether a batch without a transaction is the expected one, as nearly all are; it counts as coming then.

        In one question what `find_duplicate` and `check` find out in several; otherwise they have the say.
        """
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        known = self.by_id.get(producer_id)
        if known is None or known.epoch != epoch or producer_id in self.open:
            return False
        if header.attributes & (TRANSACTIONAL | CONTROL):
            return False
        before = coming.get(producer_id)
        if before is not None:
            last = before.last
            if before.epoch != epoch or before.in_transaction:
                return False
        elif known.batches:
            last = known.batches[-1].last
        else:
            return False
        if first != last + 1 & _SEQUENCE_MASK:
            return False
        for batch in known.batches:
            if batch.first == first:
                return False  # sequences began anew, and it may be a duplicate
        coming[producer_id] = Coming(epoch, first + header.last_offset_delta & _SEQUENCE_MASK, False)
        return True

    def check(self, header: BatchHeader, coming: dict[int, Coming]) -> None:
        """Raises Kafka's error for a batch that does not follow its producer's last one."""
        before = coming.get(header.producer_id)
        known = self.by_id.get(header.producer_id)
        if before is None and known is not None:
            before = Coming(known.epoch, known.last_sequence, header.producer_id in self.open)
        if before is None:
            if header.is_transactional and header.base_sequence != 0:
                raise _out_of_order(header, 0)
            if header.base_sequence != 0:
                self._wait_for_earlier(header, ())
            return
        if header.producer_epoch < before.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {before.epoch}; {header.producer_epoch} is too old.",
            )
        if before.in_transaction and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"Producer {header.producer_id} has a transaction open in this partition."
            )
        self._check_sequence(header, before, header.producer_id in coming)

    def _check_sequence(self, header: BatchHeader, before: Coming, is_coming: bool) -> None:
        expected = 0 if header.producer_epoch > before.epoch else before.last + 1 & _SEQUENCE_MASK
        if header.base_sequence != expected:
            if is_coming or not self._goes_on_behind_lost(header):
                raise _out_of_order(header, expected)
            self._wait_for_earlier(header, (before.epoch, before.last))

    def _wait_for_earlier(self, header: BatchHeader, last: tuple[int, ...]) -> None:
        """Refuses a batch behind a gap while earlier ones may come, given the epoch and sequence of the last one."""
        if not self.gaps.admits(Skip(header.producer_id, (header.producer_epoch, *last), header.base_sequence)):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "An earlier batch may still be in flight.")

    def _goes_on_behind_lost(self, header: BatchHeader) -> bool:
        """Whether it follows batches that were acknowledged and that the store lost, as far as anybody can tell."""
        known = self.by_id.get(header.producer_id)
        if known is None or not known.batches or not self.gaps.may_follow(known.batches[-1].base_offset):
            return False
        return header.producer_epoch > known.epoch or is_ahead(header.base_sequence, known.batches[-1].last)

    def is_late(self, producer_id: int, epoch: int, number: int) -> bool:
        """Whether a transaction has ended here, so that its marker ends nothing: it may be one that is repeated.

        The epoch does not tell that alone: with KIP-890 a marker has the epoch of the transaction behind it, without it
        all of them have the same.
        """
        known = self.by_id.get(producer_id)
        return known is not None and (epoch < known.epoch or (epoch == known.epoch and 0 < number <= known.ended))

    def has_ended(self, producer_id: int, number: int) -> bool:
        """Whether a marker of this transaction or a later one is here, whatever its epoch."""
        known = self.by_id.get(producer_id)
        return known is not None and 0 < number <= known.ended

    def check_marker(self, header: BatchHeader, verification: Verification) -> None:
        """Raises the error for a marker of a fenced coordinator or producer."""
        known, marker = self.by_id.get(header.producer_id), verification.marker
        if known is None or marker is None:
            return
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "A later coordinator ended a transaction.")
        # One that repeats a marker may pass while nothing is open (KAFKA-19999).
        is_late = self.is_late(header.producer_id, header.producer_epoch, marker.number)
        is_late = is_late or (verification.exceeds and header.producer_epoch == known.epoch)
        if header.producer_epoch < known.epoch or (is_late and header.producer_id in self.open):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {known.epoch}; a marker of {header.producer_epoch} is late.",
            )

    # -- what is in the log -------------------------------------------------------------------------------------

    def add(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Counts a batch that is in the log."""
        if header.producer_id < 0:
            return
        batch = SequencedBatch(header.base_sequence, header.last_sequence, base_offset, now_ms)
        known = self.by_id.get(header.producer_id)
        if known is None:
            known = self.by_id[header.producer_id] = KnownProducer(header.producer_epoch, [batch])
            self.gaps.know(header.producer_id)
        elif known.epoch != header.producer_epoch:
            known.epoch, known.batches, known.ended = header.producer_epoch, [batch], 0
        else:
            known.batches.append(batch)
            del known.batches[:-KEPT_BATCHES]
        if header.attributes & TRANSACTIONAL and header.producer_id not in self.open:
            known.open_from = self.open[header.producer_id] = base_offset

    def end(self, header: BatchHeader, marker: EndMarker, offset: int, now_ms: int) -> None:
        """Counts a marker that is in the log; one that ends nothing counts, too: what comes late is known by it."""
        is_late = self.is_late(header.producer_id, header.producer_epoch, marker.number)
        known = self.by_id.get(header.producer_id)
        if known is None:
            known = self.by_id[header.producer_id] = KnownProducer(header.producer_epoch, [])
        if header.producer_epoch > known.epoch:
            known.epoch, known.batches, known.ended = header.producer_epoch, [], 0
        known.marker, known.marker_ms = offset, now_ms
        known.coordinator_epoch = max(known.coordinator_epoch, marker.coordinator_epoch)
        if is_late:
            return
        known.ended, known.committed = marker.number or known.ended, marker.commit
        first = self.open.pop(header.producer_id, None)
        self._verified.pop(header.producer_id, None)
        known.open_from = -1
        if first is not None and not marker.commit:
            stable = self.first_open()
            self.aborted.add(Aborted(offset, first, header.producer_id, offset + 1 if stable is None else stable))

    def expire(self, before_ms: int) -> None:
        """Forgets producers that have been silent for long; never one with an open transaction."""
        self.by_id = {
            key: known for key, known in self.by_id.items() if known.last_seen_ms >= before_ms or key in self.open
        }
        self._verified = {key: verified for key, verified in self._verified.items() if key in self.by_id}

    def forget_between(self, start: int, end: int) -> None:
        """Forgets producers whose last batch was lost; their open transactions stay open until a marker."""
        for key, known in list(self.by_id.items()):
            if start <= known.last_base < end:
                if key in self.open and self.open[key] < start:
                    known.batches = [batch for batch in known.batches if batch.base_offset < start]
                else:
                    self.open.pop(key, None)
                    del self.by_id[key]


def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} sent sequence {header.base_sequence}, expected {expected}.",
    )
