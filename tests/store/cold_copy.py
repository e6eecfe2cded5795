"""A cold log that is a copy of batches in memory, for tests of what the store makes of one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.cold_log import ColdAway, ColdBatches, ColdPartition, ColdTable, Held
from headrace.wire.batch import iter_headers
from headrace.wire.records import Record, decode_batch


class ColdCopy:
    """Holds what it was given. It can be away, or slow until it is let go."""

    def __init__(self) -> None:
        self.batches: dict[tuple[bytes, int], list[bytes]] = {}
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.reads = 0

    def archive(self, topic_id: bytes, number: int, entries: Sequence[bytes]) -> None:
        """Takes the batches of entries of a log."""
        held = self.batches.setdefault((topic_id, number), [])
        for entry in entries:
            held += [entry[pos : pos + header.length] for pos, header in iter_headers(entry)]

    def _held(self, partition: ColdPartition) -> list[bytes]:
        return self.batches.get((partition.topic_id, partition.number), [])

    async def _answer(self) -> None:
        await self.may_answer.wait()
        if self.is_away:
            raise ColdAway("the copy is away")

    async def check(self) -> None:
        await self._answer()

    def reason(self, partition: ColdPartition) -> str | None:
        return None if self._held(partition) else "the copy has nothing"

    async def held(self, partition: ColdPartition, *, fresh: bool = False) -> Held | None:
        await self._answer()
        headers = [header for batch in self._held(partition) for _, header in iter_headers(batch)]
        if not headers:
            return None
        return Held(headers[0].base_offset, headers[-1].next_offset, sum(header.length for header in headers))

    async def read(self, partition: ColdPartition, offset: int, stop: int, max_bytes: int) -> ColdBatches:
        self.reads += 1
        await self._answer()
        found: list[bytes] = []
        next_offset = offset
        for batch in self._held(partition):
            ((_, header),) = iter_headers(batch)
            if header.next_offset > offset and header.base_offset < stop and (not found or max_bytes > 0):
                found.append(batch)
                max_bytes -= len(batch)
                next_offset = header.next_offset
        if not found:
            raise ColdAway(f"the copy has nothing at {offset}")
        return ColdBatches(found, next_offset)

    def _records(self, partition: ColdPartition, first: int, stop: int) -> list[Record]:
        records = [record for batch in self._held(partition) for record in decode_batch(batch)]
        return [record for record in records if first <= record.offset < stop]

    async def find_time(
        self, partition: ColdPartition, timestamp: int, first: int, stop: int
    ) -> tuple[int, int] | None:
        await self._answer()
        found = (record for record in self._records(partition, first, stop) if record.timestamp >= timestamp)
        return next(((record.offset, record.timestamp) for record in found), None)

    async def find_newest(self, partition: ColdPartition, first: int, stop: int) -> tuple[int, int] | None:
        await self._answer()
        records = self._records(partition, first, stop)
        newest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
        return (newest.offset, newest.timestamp) if newest else None

    async def retained_start(
        self, partition: ColdPartition, first: int, stop: int, oldest_ms: int | None, most_bytes: int | None
    ) -> int:
        await self._answer()
        start, left = stop, most_bytes
        for batch in reversed(self._held(partition)):
            ((_, header),) = iter_headers(batch)
            if header.base_offset >= stop:
                continue
            left = None if left is None else left - len(batch)
            if (left is not None and left < 0) or (oldest_ms is not None and 0 <= header.max_timestamp < oldest_ms):
                break
            start = header.base_offset
        return max(first, start)

    async def describe(self, partition: ColdPartition) -> ColdTable:
        await self._answer()
        return ColdTable("a copy", 0, 0, 0, 0, None, None)

    async def close(self) -> None:
        return
