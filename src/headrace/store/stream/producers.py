"""Idempotent producers of format `stream`: their state is stored with each append, in the same atomic write.

A state is `<epoch> <first>:<last>:<id> ...`: the sequences of the last batches and the ids of their first entries,
which the server chooses while it appends. An append names the states that it was checked against; if another writer
changed one meanwhile, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.store.partition.sequences.gaps import SequenceGaps
from headrace.store.partition.sequences.producers import KEPT_BATCHES, KnownProducer, Producers, SequencedBatch
from headrace.store.stream.ids import StreamIds, parse_id
from headrace.wire.batch import BatchHeader

_OUTDATED = -1
"""The version of states that have to be read again: below every other one."""


class StreamProducers(Producers):
    """The producers of one partition, in memory and in the store."""

    def __init__(self, gaps: SequenceGaps | None = None) -> None:
        super().__init__(gaps)
        self.states: dict[int, bytes] = {}
        self.version = 0
        """Counts the changes of states in the store, those by other nodes too."""

    def outdate(self) -> None:
        """Marks the cached states as stale."""
        self.version = _OUTDATED

    def count_append(self, version: int) -> None:
        """Told the version after an append of ours; if it is not the next one, others changed something too."""
        self.version = version if version == self.version + 1 else _OUTDATED

    def load_states(self, rows: Iterable[tuple[bytes, bytes]], ids: StreamIds) -> None:
        """Loads the stored state."""
        self.states = {int(producer_id): state for producer_id, state in rows}
        self.by_id = {producer_id: _parse(state, ids) for producer_id, state in self.states.items()}

    def covers(self, header: BatchHeader) -> bool:
        """Whether a producer's state has a batch that is in the stream already, or a later one; or there is none."""
        known = self.by_id.get(header.producer_id)
        return header.producer_id < 0 or (known is not None and known.batches[-1].base_offset >= header.base_offset)

    def heads(self, headers: list[BatchHeader]) -> tuple[list[bytes], list[bytes]]:
        """The parts that the script puts before each batch's first id, and the producers with their known states.

        A head that begins with a space goes on where the batch before it of the same producer ended.
        """
        heads, known, epochs = list[bytes](), list[bytes](), dict[int, int]()
        for header in headers:
            producer_id, epoch = header.producer_id, header.producer_epoch
            if producer_id < 0:
                heads.append(b"")
                continue
            batch = b" %d:%d:" % (header.base_sequence, header.last_sequence)
            if producer_id not in epochs:
                known += (b"%d" % producer_id, self.states.get(producer_id, b""))
            if epochs.get(producer_id) == epoch:
                heads.append(batch)
            else:
                heads.append(b"%d" % epoch + self._kept(producer_id, epoch, producer_id in epochs) + batch)
            epochs[producer_id] = epoch
        return heads, known

    def _kept(self, producer_id: int, epoch: int, is_later: bool) -> bytes:
        before = self.by_id.get(producer_id)
        if is_later or before is None or before.epoch != epoch:
            return b""
        kept = self.states[producer_id].split(b" ")[1:][1 - KEPT_BATCHES :]
        return b"".join(b" " + batch for batch in kept)

    def appended(self, header: BatchHeader, head: bytes, first_id: bytes, ids: StreamIds) -> None:
        """Counts a batch that is in the stream."""
        if header.producer_id < 0:
            return
        state = (self.states[header.producer_id] if head[:1] == b" " else b"") + head + first_id
        if header.producer_id not in self.states:
            self.gaps.know(header.producer_id)
        self.states[header.producer_id] = state
        self.by_id[header.producer_id] = _parse(state, ids)

    def take_expired(self, before_ms: int) -> list[bytes]:
        """Forgets producers that have been silent for long; their ids and states as the store has them."""
        self.expire(before_ms)
        return self.take_forgotten()

    def take_forgotten(self) -> list[bytes]:
        """The producers that were forgotten, in the store's form."""
        gone = [producer_id for producer_id in self.states if producer_id not in self.by_id]
        return [part for producer_id in gone for part in (b"%d" % producer_id, self.states.pop(producer_id))]


def _parse(state: bytes, ids: StreamIds) -> KnownProducer:
    epoch, *batches = state.split(b" ")
    found = []
    for batch in batches[-KEPT_BATCHES:]:
        first, last, raw_id = batch.split(b":")
        entry = parse_id(raw_id)
        found.append(SequencedBatch(int(first), int(last), ids.offset_of(entry), entry.ms))
    return KnownProducer(int(epoch), found)
