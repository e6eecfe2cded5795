"""Reads cold records forward from a snapshot of the table, and prefetches for sequential readers.

The rule: a response is batches, or a range without records (a recorded gap, or offsets without records); if no live
file covers an offset it is `ColdAway`. A missing file triggers one new snapshot, because compaction may have replaced
it.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections import OrderedDict
from concurrent.futures import Executor

from headrace.cold_log import ColdAway, ColdBatches, ColdPartition
from headrace.lake.cold.cpu_share import CpuShare
from headrace.lake.cold.row_groups import FileCache, OpenFile, PieceCache, RowGroup
from headrace.lake.cold.tables import KnownTables, lacks
from headrace.lake.records.encode import EncodedBatch
from headrace.lake.storage.place import reason
from headrace.lake.table.snapshot import Snapshot

AHEAD_BYTES = 8 * 1024 * 1024
"""Encoded bytes prefetched for a sequential consumer."""

MOST_PREPARING = 3
"""Concurrent prefetches, fewer than threads: waiting consumers go first."""

GATHER_S = 0.05
"""How long a response that already has batches waits for more."""

_READERS = 1024


class ForwardReader:
    """Reads for all consumers of a broker."""

    def __init__(self, tables: KnownTables, files: FileCache, executor: Executor, share: CpuShare) -> None:
        self._tables, self._files, self._executor = tables, files, executor
        self._pieces = PieceCache(executor, share)
        self._read_to: OrderedDict[tuple[ColdPartition, int], None] = OrderedDict()
        self._preparing: set[asyncio.Task[None]] = set()

    async def read(self, partition: ColdPartition, offset: int, stop: int, max_bytes: int) -> ColdBatches:
        """Batches from an offset on, below `stop`. A snapshot of any age will do if it has the offset."""
        try:
            snapshot = await self._tables.any(partition)
            if snapshot.of(partition.number).at(offset) is not None:
                return await self._read(partition, snapshot, offset, stop, max_bytes)
        except FileNotFoundError:
            self._files.forget()
        snapshot = await self._tables.fresh(partition)
        try:
            return await self._read(partition, snapshot, offset, stop, max_bytes)
        except FileNotFoundError as error:
            raise ColdAway(f"A file of the table of {partition.topic} is missing: {reason(error)}") from None

    async def _read(
        self, partition: ColdPartition, snapshot: Snapshot, offset: int, stop: int, max_bytes: int
    ) -> ColdBatches:
        deadline = asyncio.get_running_loop().time() + GATHER_S
        walk = self._walk(partition, snapshot, offset, stop)
        batches: list[EncodedBatch] = []
        left = max_bytes
        # With some batches at hand, do not wait long for more: the rest will be there the next time.
        with contextlib.suppress(TimeoutError):
            while left > 0:
                async with asyncio.timeout_at(deadline if batches else None):
                    if (at := await walk.next()) is None:
                        break
                    piece = await self._pieces.get(*at, stop)
                for batch in piece.from_offset(walk.position):
                    if batches and len(batch.content) > left:
                        left = 0
                        break
                    batches.append(batch)
                    left -= len(batch.content)
                    walk.position = batch.last + 1
                else:
                    # There may be no record between its last one and `stop`: a transaction's marker takes an offset.
                    walk.position = min(at[1].last + 1, stop)
        next_offset = batches[-1].last + 1 if batches else min(walk.position, stop)
        if self._reads_on(partition, offset, next_offset) and len(self._preparing) < MOST_PREPARING:
            ahead = asyncio.create_task(self._prepare(self._walk(partition, snapshot, next_offset, stop), stop))
            self._preparing.add(ahead)
            ahead.add_done_callback(self._preparing.discard)
        return ColdBatches([batch.content for batch in batches], next_offset)

    def _walk(self, partition: ColdPartition, snapshot: Snapshot, offset: int, stop: int) -> _Walk:
        return _Walk(self._files, self._executor, partition, snapshot, offset, stop)

    # Reading ahead

    def _reads_on(self, partition: ColdPartition, offset: int, next_offset: int) -> bool:
        """Whether this read began where an earlier one ended."""
        reads_on = (partition, offset) in self._read_to
        self._read_to.pop((partition, offset), None)
        self._read_to[partition, next_offset] = None
        if len(self._read_to) > _READERS:
            self._read_to.popitem(last=False)
        return reads_on

    async def _prepare(self, walk: _Walk, stop: int) -> None:
        left = AHEAD_BYTES
        # The consumer's own read will meet the same error and report it.
        with contextlib.suppress(ColdAway, FileNotFoundError):
            while left > 0 and (at := await walk.next()) is not None:
                left -= (await self._pieces.get(*at, stop)).size_bytes
                walk.position = at[1].last + 1


class _Walk:
    """The row groups of [position, stop), found one by one; `position` skips offsets without records."""

    def __init__(
        self,
        files: FileCache,
        executor: Executor,
        partition: ColdPartition,
        snapshot: Snapshot,
        position: int,
        stop: int,
    ) -> None:
        self._files, self._executor, self._table = files, executor, snapshot.place
        self._partition, self._found = partition, snapshot.of(partition.number)
        self._asked, self.position, self._stop = position, position, stop

    async def next(self) -> tuple[OpenFile, RowGroup] | None:
        """The row group with the next record; None at `stop`, or if there is nothing more."""
        while self.position < self._stop:
            at = self._found.at(self.position)
            if at is None:
                if self.position == self._asked:
                    raise lacks(self._partition, self.position)
                return None
            file = self._found.files[at]
            if file.rows:
                loop = asyncio.get_running_loop()
                opened = await loop.run_in_executor(self._executor, self._files.open, self._table, file)
                index = bisect.bisect_left(opened.groups, self.position, key=lambda group: group.last)
                if index < len(opened.groups):
                    group = opened.groups[index]
                    if group.first < self._stop:
                        return opened, group
                    self.position = self._stop
                    return None
            self.position = file.end
        return None
