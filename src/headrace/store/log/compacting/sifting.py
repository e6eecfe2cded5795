"""How a pass treats each batch: first it records the keys, then it drops the records that later ones replace.

Records of aborted transactions are dropped, and replace nothing. Markers stay: the list of aborted transactions refers
to them.

Batches are unpacked and packed through `store/unpacking.py`. A batch whose records cannot be read stays as it is: it
came before the topic was compacted, when records were not inspected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from headrace.store.log.compacting.room import Rest
from headrace.store.partition.entries import Entry
from headrace.store.partition.key_map import digest
from headrace.store.partition.sequences.aborted import Aborted
from headrace.wire.batch import MAX_UNPACKED_BYTES, BatchHeader, end_offset, iter_headers
from headrace.wire.batch_errors import BatchError
from headrace.wire.cleaning import Sifted, emptied, horizon_of, note_keys, rebuilt, sift
from headrace.wire.schema import Buffer

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition


class _Aborted:
    """Which batches are part of aborted transactions: all that a pass meets have ended."""

    def __init__(self, rows: Iterable[Aborted]) -> None:
        self._of_producer: dict[int, list[Aborted]] = {}
        for row in rows:
            self._of_producer.setdefault(row.producer_id, []).append(row)

    def holds(self, header: BatchHeader) -> bool:
        """Whether a batch of records was aborted."""
        if not header.is_transactional or header.is_control:
            return False
        rows = self._of_producer.get(header.producer_id, [])
        at = bisect_left(rows, header.base_offset, key=lambda row: row.marker)
        return at < len(rows) and rows[at].first <= header.base_offset


class Sieve:
    """The keys of one pass, and the rule by which records go."""

    def __init__(self, partition: LogPartition, now_ms: int, delete_retention_ms: int, rest: Rest) -> None:
        self.latest: dict[bytes, int] = {}
        """The last offset of each key that is new."""
        self.now_ms = now_ms
        self.horizon_ms: int | None = None
        """When the first of the tombstones may go that stay."""
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._producers = partition.producers
        self._aborted = _Aborted(partition.producers.aborted.rows)
        self._unpacking = partition.context.unpacking
        self.rest = rest

    async def note(self, entry: Entry) -> None:
        """Takes in the keys of an entry; later ones replace earlier ones."""
        for batch, header in _batches(entry):
            if header.is_control or not header.count or self._aborted.holds(header):
                continue
            try:
                async with self._unpacking.records(batch, header, MAX_UNPACKED_BYTES) as data:
                    await self._unpacking.go_over(note_keys(data, header, self.latest, digest), self.rest.take)
            except BatchError:
                continue

    async def sift(self, entry: Entry) -> Entry | None:
        """The remaining entry, if any."""
        left: list[Buffer] = []
        for batch, header in _batches(entry):
            if (kept := await self._left_of(batch, header)) is not None:
                left.append(kept)
        if not left:
            return None
        data = b"".join(left)
        return Entry(entry.base, end_offset(data), data, entry.token, entry.append_time)

    async def _left_of(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        if header.is_control:
            return batch
        if self._aborted.holds(header):
            return emptied(header) if self._is_last_of_producer(header) else None
        if not header.count:
            return batch if self._is_last_of_producer(header) else None
        try:
            async with self._unpacking.records(batch, header, MAX_UNPACKED_BYTES) as data:
                steps = sift(data, header, self.latest, digest, self.now_ms)
                sifted = await self._unpacking.go_over(steps, self.rest.take)
                gets_horizon = sifted.has_tombstones and horizon_of(header) is None
                self._note_horizon(header, sifted)
                if sifted.kept == header.count and not gets_horizon:
                    return batch
                if not sifted.kept:
                    return emptied(header) if self._is_last_of_producer(header) else None
                pack = partial(rebuilt, data, header, sifted, self._new_horizon_ms if gets_horizon else None)
                return await self._unpacking.packed(sum(end - start for start, end in sifted.runs), pack)
        except BatchError:
            return batch

    def _note_horizon(self, header: BatchHeader, sifted: Sifted) -> None:
        """A batch has its horizon for good, also when no tombstone is left in it."""
        if sifted.has_tombstones:
            horizon = horizon_of(header)
            horizon = self._new_horizon_ms if horizon is None else horizon
            self.horizon_ms = horizon if self.horizon_ms is None else min(horizon, self.horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a batch has the last sequence of a producer that is still known."""
        known = self._producers.by_id.get(header.producer_id)
        return bool(known and known.batches and known.batches[-1].base_offset == header.base_offset)


def _batches(entry: Entry) -> list[tuple[memoryview, BatchHeader]]:
    view = memoryview(entry.data)
    return [(view[pos : pos + header.length], header) for pos, header in iter_headers(entry.data)]
