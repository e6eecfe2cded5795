"""Where the mirror of a group stands in the stream: the last entry before a commit, and how many Redis counts up to it.

Redis counts every entry that was ever added to the key, and its lag is that count less the mirror's. The index counts
too, but a node may never have seen what was trimmed before it opened the partition, and a key that was made again
counts from 0. So a mirror is counted back from the end; how far the server's count is ahead of the index is asked once
for each server and each load, and when entries were missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.store.partition.entries import NO_OFFSET, base_of
from headrace.store.partition.index import Index

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

_START_ID = "0-0"
_LOOKS = 3


class MirrorPositions:
    """Those in one partition."""

    def __init__(self, partition: LogPartition) -> None:
        self._partition = partition
        self._ahead = 0
        """How many entries the server counts more than the index."""
        self._ahead_of: tuple[Index, int] | None = None
        """The index and the server that it was found for."""

    def forget(self) -> None:
        """Entries were added or removed that the index does not count."""
        self._ahead_of = None

    async def find(self, offset: int) -> tuple[str, int]:
        """The id and count of the last entry wholly below an offset."""
        partition = self._partition
        await partition.confirm_up_to(offset)
        await self._compare_counts()
        if offset >= partition.end:
            return _identity(partition.last_base), partition.index.entries + self._ahead
        base, entries = await self._last_below(offset)
        if base == NO_OFFSET:  # nothing is left before it: what is left is yet to be read
            left = await partition.link.call("XLEN", partition.keys.log)
            entries = partition.index.entries - left
        return _identity(base), max(entries + self._ahead, 0)

    async def _last_below(self, offset: int) -> tuple[int, int]:
        """The last entry wholly below an offset, and how many the index counts up to it."""
        partition, index = self._partition, self._partition.index
        point, following = index.floor(offset), index.following(offset)
        if point is None or offset == 0:
            return NO_OFFSET, 0
        end, count = (following.offset, following.entries) if following else (partition.end, index.entries)
        base = NO_OFFSET
        async for entries in partition.walk(point.offset, end):
            for entry in entries:
                if entry.end > offset:
                    count -= 1
                else:
                    base = entry.base
        if base == NO_OFFSET:
            rows = await partition.reads.call("XREVRANGE", partition.keys.log, f"{point.offset}-0", "-", "COUNT", 1)
            base = base_of(rows[0]) if rows else partition.clean.end - 1
        return base, count

    async def _compare_counts(self) -> None:
        """Compares what the server and the index count up to the same entry; left for later while others append."""
        partition = self._partition
        for _ in range(_LOOKS):
            of = partition.index, partition.link.timeline
            if self._ahead_of == of:
                return
            reply = await partition.link.call("XINFO", "STREAM", partition.keys.log)
            facts = dict(zip(reply[::2], reply[1::2], strict=True))
            added, last = facts.get(b"entries-added"), facts[b"last-entry"]
            if added is None or last is None:
                return  # Redis before 7 does not count, and an empty stream shows no lag
            if base_of(last) == partition.last_base and of == (partition.index, partition.link.timeline):
                self._ahead, self._ahead_of = added - partition.index.entries, of
                return
            await partition.confirm()


def _identity(base: int) -> str:
    return f"{base}-1" if base != NO_OFFSET else _START_ID
