"""The sparse index of a partition: from an offset or a time to a place in the log, without reading the log.

A point says, for the entry at `offset`, what came before it: the largest timestamp, the bytes and the entries. There
is one every 64 KiB of log, or when a minute of records' time has passed, whichever comes first; both follow from the
log alone, so two nodes that write make the same points. In Redis it is a small stream with the log's own ids, trimmed
like the log; here it is four sorted arrays, 32 bytes a point.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

_VALUE = struct.Struct(">qqq")
TIME_STEP_MS = 60_000
NO_TIMESTAMP = -1


class Point(NamedTuple):
    """What lies before the entry at `offset`."""

    offset: int
    max_timestamp: int
    size_bytes: int
    entries: int

    def value(self) -> bytes:
        """As stored; the offset is the stored id."""
        return _VALUE.pack(self.max_timestamp, self.size_bytes, self.entries)


class Index:
    """The points of one partition, and the running totals at its end."""

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.offsets = array("q")
        self.timestamps = array("q")
        self.sizes = array("q")
        self.counts = array("q")
        self.max_timestamp = NO_TIMESTAMP
        self.size_bytes = 0
        self.entries = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def point(self, at: int) -> Point:
        """The point at a place in the arrays."""
        return Point(self.offsets[at], self.timestamps[at], self.sizes[at], self.counts[at])

    def load(self, rows: list[tuple[int, bytes]]) -> None:
        """Takes the stored points; the totals are those of the last one until entries after it are added."""
        for offset, value in rows:
            self._add(Point(offset, *_VALUE.unpack(value)))
        if self.offsets:
            last = self.point(-1)
            self.max_timestamp, self.size_bytes, self.entries = last.max_timestamp, last.size_bytes, last.entries

    def add_entry(self, base: int, size_bytes: int, max_timestamp: int, entries: int = 1) -> Point | None:
        """Counts an entry, or several in a row; returns the point to store if one was due before it."""
        point = Point(base, self.max_timestamp, self.size_bytes, self.entries)
        due = not self.offsets or (
            base > self.offsets[-1]
            and (
                self.size_bytes - self.sizes[-1] >= self.interval_bytes
                or self.max_timestamp - self.timestamps[-1] >= TIME_STEP_MS
            )
        )
        if due:
            self._add(point)
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.size_bytes += size_bytes
        self.entries += entries
        return point if due else None

    def _add(self, point: Point) -> None:
        self.offsets.append(point.offset)
        self.timestamps.append(point.max_timestamp)
        self.sizes.append(point.size_bytes)
        self.counts.append(point.entries)

    def floor(self, offset: int) -> Point | None:
        """The last point at or below an offset."""
        at = bisect_right(self.offsets, offset) - 1
        return self.point(at) if at >= 0 else None

    def following(self, offset: int) -> Point | None:
        """The first point above an offset."""
        at = bisect_right(self.offsets, offset)
        return self.point(at) if at < len(self.offsets) else None

    def after_bytes(self, offset: int, size_bytes: int) -> int | None:
        """The first indexed offset that lies at least `size_bytes` behind `offset`: where a read may stop."""
        start = self.floor(offset)
        at = bisect_left(self.sizes, (start.size_bytes if start else 0) + size_bytes + self.interval_bytes)
        while at < len(self.offsets) and self.offsets[at] <= offset:
            at += 1
        return self.offsets[at] if at < len(self.offsets) else None

    def around_time(self, timestamp: int) -> tuple[int, int | None]:
        """Below the first offset no record is as late as `timestamp`; below the second one there was one that is."""
        at = bisect_left(self.timestamps, timestamp)
        first = self.offsets[at - 1] if at > 0 else 0
        return first, self.offsets[at] if at < len(self.offsets) else None

    def may_be_before(self, offset: int, timestamp: int) -> bool:
        """Whether a record below an offset can be as late as a time, also where the points before it are gone."""
        at = bisect_left(self.offsets, offset)
        newest = self.timestamps[at] if at < len(self.offsets) else self.max_timestamp
        return newest == NO_TIMESTAMP or timestamp <= newest

    def entries_in(self, offset: int, size_bytes: int) -> int:
        """About how many entries from an offset on make up so many bytes, by the sizes around it."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0:
            return 1
        before = self.point(at)
        if at + 1 < len(self.offsets):
            bytes_after, entries_after = self.sizes[at + 1], self.counts[at + 1]
        else:
            bytes_after, entries_after = self.size_bytes, self.entries
        mean_bytes = (bytes_after - before.size_bytes) / max(entries_after - before.entries, 1)
        return int(size_bytes / max(mean_bytes, 1)) + 1

    def expired_by_time(self, cutoff_ms: int) -> int | None:
        """The highest indexed offset all of whose predecessors are older than the cutoff."""
        at = bisect_left(self.timestamps, cutoff_ms) - 1
        return self.offsets[at] if at >= 0 else None

    def expired_by_size(self, keep_bytes: int) -> int | None:
        """The highest indexed offset from which on at least `keep_bytes` remain."""
        at = bisect_right(self.sizes, self.size_bytes - keep_bytes) - 1
        return self.offsets[at] if at >= 0 else None

    def forget_before(self, offset: int) -> int | None:
        """Drops the points that nothing refers to any more; returns the first one kept."""
        at = bisect_right(self.offsets, offset) - 1
        if at > 0:
            del self.offsets[:at], self.timestamps[:at], self.sizes[:at], self.counts[:at]
        return self.offsets[0] if self.offsets else None

    def bytes_since(self, offset: int) -> int:
        """The size of the log from an offset on, to within one interval."""
        point = self.floor(offset)
        return self.size_bytes - (point.size_bytes if point else 0)
