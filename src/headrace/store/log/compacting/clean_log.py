"""The compacted part of a partition as readers see it: the stream `:clean`, its index, and where it ends.

Its entries are those of the log, under the same ids, with fewer records; small neighbours are joined. A copy is
replaced as a whole, so the commands of one read must all see the same copy: after the last of them the meta says which
one is current. If it is not the one this node knows, the partition is confirmed with the store and the read starts
over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.log.compacting.state import NOTHING_CLEAN, CleanState, parse_state
from headrace.store.log.entries import parse_entry, walk
from headrace.store.partition.entries import LAST_SEQUENCE, Batches, Entry, base_of, entry_fields, take
from headrace.store.partition.index import Index
from headrace.store.redis.link import Argument
from headrace.wire.batch import end_offset

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition


class CleanRead(NamedTuple):
    """The result of a read from the compacted part, and whether there is more after it."""

    batches: Batches
    is_last: bool


class CleanLog:
    """The compacted part of a partition, as cached by this node."""

    def __init__(self, partition: LogPartition) -> None:
        self._partition = partition
        self.keys = partition.keys.clean
        self.forget()

    def forget(self) -> None:
        """The state before the first compaction."""
        self.stored = b""
        """The state as it is in the store, byte by byte."""
        self.state = NOTHING_CLEAN
        self.end = self.state.end
        """Below this records are read from here, from it on from the log."""
        self.is_lost = False
        """Whether the store has not got it, although nobody removed it; unless the log starts behind it."""
        self.index = Index(self._partition.options.index_interval_bytes)

    async def load(self) -> bool:
        """Reads the stored state; returns whether it differs from the known one."""
        partition = self._partition
        stored, points, is_there = await partition.link.transaction(
            ("HGET", partition.keys.meta, "clean"),
            ("XRANGE", self.keys.points, "-", "+"),
            ("EXISTS", self.keys.log),
        )
        if (stored or b"") == self.stored:
            return False
        index = Index(partition.options.index_interval_bytes)
        index.load((base_of(row), entry_fields(row)) for row in points)
        state = parse_state(stored)
        index.end_with(state.kept)
        self.adopt(stored or b"", state, index)
        self.is_lost = not is_there and bool(state.kept.entries)
        return True

    def adopt(self, stored: bytes, state: CleanState, index: Index) -> None:
        """Adopts a new compacted part: the log's own index begins behind it."""
        self.stored, self.state, self.end, self.index = stored, state, state.end, index
        if state.end:
            self._partition.index.begin_at(state.point)

    async def is_current(self) -> bool:
        """Whether the part that this node knows is the one in the store."""
        known = self.stored
        stored = await self._partition.reads.call("HGET", self._partition.keys.meta, "clean")
        return (stored or b"") == known == self.stored

    async def is_there(self) -> bool:
        """The same; if not, the store is looked at."""
        if await self.is_current():
            return True
        self._partition.doubt()
        await self._partition.confirm()
        return False

    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> CleanRead | None:
        """Batches from an offset on; None if another copy took the place of this one meanwhile."""
        partition, key, stored = self._partition, self.keys.log, self.stored
        commands: list[tuple[Argument, ...]] = [
            ("XREVRANGE", key, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1),
            ("XRANGE", key, f"({offset}-{LAST_SEQUENCE}", "+", "COUNT", self._count(offset, max_bytes)),
            ("HGET", partition.keys.meta, "clean"),
        ]
        holding, following, now = await partition.reads.pipeline(*commands)
        if (now or b"") != stored or stored != self.stored:
            partition.doubt()
            await partition.confirm()
            return None
        found = [
            entry for row in chain(holding, following) if (entry := parse_entry(row)) is not None and entry.end > offset
        ]
        taken = take((entry.data for entry in found), offset, max_bytes, at_least_one)
        # What did not fit comes first in the next read: only behind all of it does the log go on.
        is_all = not found or (bool(taken.chunks) and end_offset(taken.chunks[-1]) == found[-1].end)
        is_last = is_all and len(following) < self._count(offset, max_bytes)
        return CleanRead(taken, is_last)

    def _count(self, offset: int, max_bytes: int) -> int:
        return max(self.index.entries_in(offset, max_bytes) - 1, 1)

    async def walk(self, first: int, stop: int | None = None) -> AsyncIterator[list[Entry]]:
        """Its entries, in bounded portions."""
        async for entries in walk(self._partition.reads, self.keys.log, first, stop):
            yield entries

    def size_since(self, offset: int) -> int:
        """Bytes of its entries from an offset on, to within one interval of the index."""
        return self.index.bytes_since(offset) if offset < self.end else 0

    async def free_before(self, offset: int) -> None:
        """Removes the entries wholly before an offset, once it is stored that they are not to be read."""
        link = self._partition.link
        if not self.end:
            return
        if offset >= self.end:
            if len(self.index):
                await link.call("UNLINK", self.keys.log, self.keys.points)
                self.index = Index(self._partition.options.index_interval_bytes)
            return
        holding = await self._partition.reads.call(
            "XREVRANGE", self.keys.log, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1
        )
        if not holding:
            return
        keep = base_of(holding[0])
        first_point = self.index.forget_before(keep)
        await link.call("XTRIM", self.keys.log, "MINID", "=", f"{keep}-0")
        if first_point is not None:
            await link.call("XTRIM", self.keys.points, "MINID", "=", f"{first_point}-0")
