"""Idempotent producers: what was the last sequence of each, so that a batch sent twice is stored once.

The rules are Kafka's: the last five batches of a producer are remembered and answered with the offset they got; a
batch must follow the last one without a gap; a new epoch starts at 0; a producer that is not known (any more) may
start anywhere. The state follows from the log: it advances when a batch is in the log, never before, and a snapshot
of it in Redis only saves reading the log again.
"""

from __future__ import annotations

import msgspec

from headrace.wire.batch import BatchHeader
from headrace.wire.errors import ErrorCode, KafkaError

KEPT_BATCHES = 5
_SEQUENCE_MASK = (1 << 31) - 1


class SequencedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that is in the log."""

    first: int
    last: int
    base_offset: int
    seen_ms: int


class Producer(msgspec.Struct, array_like=True):
    """What is known of one producer in one partition."""

    epoch: int
    batches: list[SequencedBatch]

    @property
    def last_seen_ms(self) -> int:
        return self.batches[-1].seen_ms


class Snapshot(msgspec.Struct):
    """The producers as of `offset`: all batches below it are counted."""

    offset: int
    producers: dict[int, Producer]


class Producers:
    """The producers of one partition."""

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}

    def load(self, snapshot: bytes | None) -> int:
        """Takes a stored snapshot; returns the offset from which the log has to be read on."""
        if snapshot is None:
            return 0
        loaded = msgspec.json.decode(snapshot, type=Snapshot)
        self.by_id = loaded.producers
        return loaded.offset

    def snapshot(self, offset: int) -> bytes:
        """The state as it is stored."""
        return msgspec.json.encode(Snapshot(offset, self.by_id))

    def find_duplicate(self, header: BatchHeader) -> SequencedBatch | None:
        """The batch in the log that this one repeats."""
        known = self.by_id.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            return None
        for batch in known.batches:
            if batch.first == header.base_sequence and batch.last == header.last_sequence:
                return batch
        return None

    def check(self, header: BatchHeader, pending: dict[int, tuple[int, int]]) -> None:
        """Raises what Kafka answers to a batch that does not follow its producer's last one.

        `pending` has (epoch, last sequence) of batches that go into the log before this one.
        """
        epoch, last = pending.get(header.producer_id) or self._last(header.producer_id)
        if epoch < 0:
            return
        if header.producer_epoch < epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {epoch}; {header.producer_epoch} is too old.",
            )
        expected = 0 if header.producer_epoch > epoch else last + 1 & _SEQUENCE_MASK
        if header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} sent sequence {header.base_sequence} where {expected} was due.",
            )

    def _last(self, producer_id: int) -> tuple[int, int]:
        known = self.by_id.get(producer_id)
        return (known.epoch, known.batches[-1].last) if known else (-1, -1)

    def add(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Counts a batch that is in the log."""
        if header.producer_id < 0:
            return
        batch = SequencedBatch(header.base_sequence, header.last_sequence, base_offset, now_ms)
        known = self.by_id.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            self.by_id[header.producer_id] = Producer(header.producer_epoch, [batch])
        else:
            known.batches.append(batch)
            del known.batches[:-KEPT_BATCHES]

    def expire(self, before_ms: int) -> None:
        """Forgets producers that have been silent for long."""
        self.by_id = {key: known for key, known in self.by_id.items() if known.last_seen_ms >= before_ms}

    def forget_between(self, start: int, end: int) -> None:
        """Forgets the producers whose last batch the store lost."""
        self.by_id = {
            key: known for key, known in self.by_id.items() if not start <= known.batches[-1].base_offset < end
        }
