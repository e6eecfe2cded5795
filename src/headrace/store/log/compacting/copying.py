"""The copy made by a pass: the remaining records of each entry, written in steps to a separate stream, with an index.

Small neighbours are joined, or a log with few records left would be mostly overhead. The copy is bounded: before each
step there must be room for it below the mark at which produces are rejected.
"""

from __future__ import annotations

from headrace.store.keys import CleanKeys
from headrace.store.log.compacting.room import Rooms
from headrace.store.log.entries import xadd
from headrace.store.partition.entries import Entry
from headrace.store.partition.index import TIME_STEP_MS, Index
from headrace.store.redis.errors import PartitionGone
from headrace.store.redis.route import Route
from headrace.wire.records import NO_TIMESTAMP

JOINED_BYTES = 32 << 10
"""Entries are joined up to this size: about what a reader takes at once at least."""


class Copy:
    """One copy under way."""

    def __init__(self, link: Route, keys: CleanKeys, rooms: Rooms, interval_bytes: int, now_ms: int) -> None:
        self.index = Index(interval_bytes)
        self.points = 0
        self._link = link
        self._keys = keys
        self._rooms = rooms
        self._now_ms = now_ms
        self._open: list[Entry] = []
        self._open_bytes = 0
        self._newest = NO_TIMESTAMP

    async def add(self, entry: Entry) -> None:
        """Adds the remaining records of an entry."""
        newest = _newest_of(entry)
        if self._open and not self._joins(entry, newest):
            await self.flush()
        self._newest = max(self._newest, newest) if self._open else newest
        self._open.append(entry)
        self._open_bytes += len(entry.data)

    def _joins(self, entry: Entry, newest: int) -> bool:
        """Whether an entry may be joined with those before it: it is small, and about as old."""
        is_small = self._open_bytes + len(entry.data) <= JOINED_BYTES
        is_as_old = abs(newest - self._newest) < TIME_STEP_MS and self._open[0].append_time == entry.append_time
        return is_small and is_as_old

    async def flush(self) -> None:
        """Writes the joined entries."""
        if not self._open:
            return
        first, data = self._open[0], b"".join(entry.data for entry in self._open)
        entry = Entry(first.base, self._open[-1].end, data, first.token, first.append_time)
        self._open, self._open_bytes = [], 0
        await self._rooms.take(len(data))
        if await self._link.send_chunks(xadd(self._keys.new_log, entry)) is None:
            raise PartitionGone(self._keys.new_log)
        newest = self._newest
        age = max(newest, entry.append_time)
        point = self.index.add_entry(entry.base, len(data), newest, age if age != NO_TIMESTAMP else self._now_ms)
        if point is not None:
            where = (self._keys.new_points, "NOMKSTREAM", f"{point.offset}-1")
            if await self._link.call("XADD", *where, "p", point.value(), "s", point.stretch()) is None:
                raise PartitionGone(self._keys.new_points)
            self.points += 1


def _newest_of(entry: Entry) -> int:
    """The newest time of its records, as its headers say it."""
    return max((header.max_timestamp for header in entry.headers()), default=NO_TIMESTAMP)
