"""The sparse index of a partition: from an offset or a time to a place in the log, without reading the log.

An index entry describes the log before `offset`: the largest timestamp, bytes and entries; and for the span since the
previous index entry, the newest record and its age. There is one per 64 KiB of log or minute of record time, whichever
comes first; both follow from the log alone, so two writers create the same entries. In Redis the index is a small
stream with the log's own ids, trimmed like the log; in memory it is six arrays, 48 bytes per entry.

Retention uses the age: the newest timestamp, or the time of the append if records have none. Lookups by time use the
newest record itself. Both are kept per span, so that deleting records affects only their own span.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.store.partition.time_steps import STEP_ENTRIES, TimeSteps
from headrace.wire.records import NO_TIMESTAMP

_VALUE = struct.Struct(">qqq")
_STRETCH = struct.Struct(">qq")
TIME_STEP_MS = 60_000


class Point(NamedTuple):
    """Totals before the entry at `offset`."""

    offset: int
    max_timestamp: int
    size_bytes: int
    entries: int
    newest: int = NO_TIMESTAMP
    """The newest record since the point before."""
    age: int = NO_TIMESTAMP
    """The age of what came since the point before; `NO_TIMESTAMP` if only what follows tells."""

    def value(self) -> bytes:
        """As stored in the field `p`; the offset is the stored id."""
        return _VALUE.pack(self.max_timestamp, self.size_bytes, self.entries)

    def stretch(self) -> bytes:
        """As stored in the field `s`, which older brokers do not know and leave alone."""
        return _STRETCH.pack(self.newest, self.age)


class Stretch(NamedTuple):
    """The log from one point to the next, or to the end; `newest` is not below the time of any record in it.

    Of one in which a time is looked for, `first` is where the search begins, and `before` the newest time that lies
    between the point and there.
    """

    first: int
    stop: int | None
    newest: int
    before: int = NO_TIMESTAMP


class Totals(NamedTuple):
    """How an index ends: its largest time, its bytes and entries, and the times of its last stretch."""

    max_timestamp: int = NO_TIMESTAMP
    size_bytes: int = 0
    entries: int = 0
    newest: int = NO_TIMESTAMP
    age: int = NO_TIMESTAMP


class Index:
    """The points of one partition, the stretches that begin at them, and the running totals at its end."""

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.offsets = array("q")
        self.timestamps = array("q")
        self.sizes = array("q")
        self.counts = array("q")
        self.newest = array("q")
        self.ages = array("q")
        self.max_timestamp = NO_TIMESTAMP
        self.size_bytes = 0
        self.entries = 0
        self.steps = TimeSteps()
        self._since_step = 0
        """Entries of the open stretch since its last step."""

    def __len__(self) -> int:
        return len(self.offsets)

    def point(self, at: int) -> Point:
        """The point at a place in the arrays."""
        at = at if at >= 0 else len(self.offsets) + at
        before = (self.newest[at - 1], self.ages[at - 1]) if at else (NO_TIMESTAMP, NO_TIMESTAMP)
        return Point(self.offsets[at], self.timestamps[at], self.sizes[at], self.counts[at], *before)

    def load(self, rows: Iterable[tuple[int, Mapping[bytes, bytes]]]) -> None:
        """Takes the stored points; the totals are those of the last one until entries after it are added."""
        for offset, fields in rows:
            self._add(self._parse(offset, fields))
        if self.offsets:
            last = self.point(-1)
            self.max_timestamp, self.size_bytes, self.entries = last.max_timestamp, last.size_bytes, last.entries

    def _parse(self, offset: int, fields: Mapping[bytes, bytes]) -> Point:
        max_timestamp, size_bytes, entries = _VALUE.unpack(fields[b"p"])
        if (stretch := fields.get(b"s")) is not None:
            return Point(offset, max_timestamp, size_bytes, entries, *_STRETCH.unpack(stretch))
        # An older point says nothing of its stretch. If the largest time did not rise, that may be because of records
        # without a time, which were taken for ones of 1970.
        rose = max_timestamp > 0 and (not self.timestamps or max_timestamp > self.timestamps[-1])
        return Point(offset, max_timestamp, size_bytes, entries, max_timestamp, max_timestamp if rose else NO_TIMESTAMP)

    def add_entry(self, base: int, size_bytes: int, newest: int, age: int, entries: int = 1) -> Point | None:
        """Counts an entry, or several in a row; returns the point to store if one was due before it."""
        point: Point | None = None
        if not self.offsets or (
            base > self.offsets[-1]
            and (
                self.size_bytes - self.sizes[-1] >= self.interval_bytes
                or self.max_timestamp - self.timestamps[-1] >= TIME_STEP_MS
            )
        ):
            point = Point(base, self.max_timestamp, self.size_bytes, self.entries, *self._open())
            self._add(point)
            self._since_step = 0
        elif self._since_step >= STEP_ENTRIES:
            self.steps.add(base, self.newest[-1])
            self._since_step = 0
        self._since_step += entries
        if newest > self.newest[-1]:
            self.newest[-1] = newest
        if age > self.ages[-1]:
            self.ages[-1] = age
        if age > self.max_timestamp:
            self.max_timestamp = age
        self.size_bytes += size_bytes
        self.entries += entries
        return point

    def _open(self) -> tuple[int, int]:
        """Totals of the last, open stretch."""
        return (self.newest[-1], self.ages[-1]) if self.offsets else (NO_TIMESTAMP, NO_TIMESTAMP)

    def _add(self, point: Point) -> None:
        if self.offsets:
            self.newest[-1], self.ages[-1] = point.newest, point.age
        self.offsets.append(point.offset)
        self.timestamps.append(point.max_timestamp)
        self.sizes.append(point.size_bytes)
        self.counts.append(point.entries)
        self.newest.append(NO_TIMESTAMP)
        self.ages.append(NO_TIMESTAMP)

    # -- by offset and size -------------------------------------------------------------------------------------

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

    def bytes_since(self, offset: int) -> int:
        """The size of the log from an offset on, to within one interval."""
        point = self.floor(offset)
        return self.size_bytes - (point.size_bytes if point else 0)

    def bytes_up_to(self, offset: int) -> int:
        """The size of the log up to an offset, to within one interval; the open stretch counts in full."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0:
            return self.sizes[0] if self.sizes else 0
        is_within = at + 1 == len(self.offsets) and offset > self.offsets[at]
        return self.size_bytes if is_within else self.sizes[at]

    # -- by time ------------------------------------------------------------------------------------------------

    def stretch_as_late(self, timestamp: int, start: int) -> Stretch | None:
        """The first stretch, from the one of offset `start` on, that has a record at or after a time."""
        # Before the first point with such a time behind it there is none; from there on it may have been deleted.
        at = max(self._at(start), bisect_left(self.timestamps, timestamp) - 1)
        newest = self.newest
        at = next((i for i in range(at, len(newest)) if newest[i] >= timestamp), len(newest))
        if at == len(newest):
            return None
        stop = self.offsets[at + 1] if at + 1 < len(self.offsets) else None
        first, before = self.steps.begin(self.offsets[at], stop, timestamp)
        return Stretch(first, stop, newest[at], before)

    def newest_stretch(self, start: int) -> Stretch | None:
        """The first stretch with the newest record, without the open one at the end."""
        at, stop = self._at(start), len(self.offsets) - 1
        if at >= stop or (newest := max(self.newest[at:stop])) == NO_TIMESTAMP:
            return None
        return self._stretch(self.newest.index(newest, at, stop))

    def stretch_at(self, offset: int) -> Stretch | None:
        """The stretch that holds an offset, or the first one; None if there is no log."""
        return self._stretch(self._at(offset)) if self.offsets else None

    def open_stretch(self) -> Stretch | None:
        """The stretch that goes to the end; None if there is no log."""
        return self._stretch(len(self.offsets) - 1) if self.offsets else None

    def correct(self, stretch: Stretch, newest: int) -> None:
        """Lowers the newest time of a stretch after records were deleted."""
        at = bisect_left(self.offsets, stretch.first)
        if at < len(self.offsets) - 1 and self._stretch(at) == stretch:
            self.newest[at] = newest

    def _at(self, offset: int) -> int:
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def _stretch(self, at: int) -> Stretch:
        stop = self.offsets[at + 1] if at + 1 < len(self.offsets) else None
        return Stretch(self.offsets[at], stop, self.newest[at])

    def may_be_before(self, offset: int, timestamp: int) -> bool:
        """Whether a record below an offset can be as late as a time, also where the points before it are gone."""
        at = bisect_left(self.offsets, offset)
        newest = self.timestamps[at] if at < len(self.offsets) else self.max_timestamp
        return newest == NO_TIMESTAMP or timestamp <= newest

    # -- old records --------------------------------------------------------------------------------------------

    def expired_by_time(self, cutoff_ms: int, end: int) -> int | None:
        """The highest indexed offset, or `end`, with only older records than the cutoff before it."""
        expired = None
        for at, age in enumerate(self.ages):
            if age >= cutoff_ms:
                break
            if age != NO_TIMESTAMP:  # else it is older than what follows, which decides
                expired = self.offsets[at + 1] if at + 1 < len(self.offsets) else end
        return expired

    def expired_by_size(self, keep_bytes: int) -> int | None:
        """The highest indexed offset from which on at least `keep_bytes` remain."""
        at = bisect_right(self.sizes, self.size_bytes - keep_bytes) - 1
        return self.offsets[at] if at >= 0 else None

    def begin_at(self, point: Point) -> None:
        """Drops everything before a point, which becomes the first one; a cut stretch keeps its times.

        Of a log that was compacted up to there: what is left of it has an index of its own.
        """
        at = bisect_right(self.offsets, point.offset) - 1
        kept = (self.newest[at], self.ages[at]) if at >= 0 else (NO_TIMESTAMP, NO_TIMESTAMP)
        arrays = (self.offsets, self.timestamps, self.sizes, self.counts, self.newest, self.ages)
        for points, value in zip(arrays, (*point[:4], *kept), strict=True):
            del points[: at + 1]
            points.insert(0, value)
        self.steps.forget_before(point.offset)
        if len(self.offsets) == 1:
            self.max_timestamp = max(self.max_timestamp, point.max_timestamp)
            self.size_bytes, self.entries = max(self.size_bytes, point.size_bytes), max(self.entries, point.entries)

    @property
    def totals(self) -> Totals:
        """The totals at the end, which no point has."""
        return Totals(self.max_timestamp, self.size_bytes, self.entries, *self._open())

    def end_with(self, totals: Totals) -> None:
        """Told how an index that is complete ends, after its points were loaded."""
        self.max_timestamp, self.size_bytes, self.entries = totals[:3]
        if self.offsets:
            self.newest[-1], self.ages[-1] = totals[3:]

    def forget_before(self, offset: int) -> int | None:
        """Drops unused points; returns the first one kept."""
        at = bisect_right(self.offsets, offset) - 1
        if at > 0:
            for points in (self.offsets, self.timestamps, self.sizes, self.counts, self.newest, self.ages):
                del points[:at]
            self.steps.forget_before(self.offsets[0])
        return self.offsets[0] if self.offsets else None
