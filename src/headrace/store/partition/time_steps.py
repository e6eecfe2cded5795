"""Steps within the stretches of an index: from a time to a few entries, instead of to all of a stretch.

A stretch of 64 KiB may be hundreds of small entries. A step says that nothing of its stretch before an offset is newer
than a time, so a search for a later time may begin there. Steps are in memory alone, 16 bytes per 16 entries: made as
entries are counted, and found again by whoever walks over a stretch that was counted before a restart. One that is
missing costs some reading.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from headrace.wire.records import NO_TIMESTAMP

STEP_ENTRIES = 16
"""As many as a walk over the log reads at first: in one command."""


class TimeSteps:
    """The steps of one index, by offset."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._newest = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, newest: int) -> None:
        """Told that nothing of the stretch that holds this offset, and lies before it, is newer."""
        offsets = self._offsets
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
            self._newest.append(newest)
        elif offsets[at := bisect_left(offsets, offset)] != offset:
            offsets.insert(at, offset)
            self._newest.insert(at, newest)

    def begin(self, first: int, stop: int | None, timestamp: int) -> tuple[int, int]:
        """Where a search for a time begins in a stretch, and the newest time that lies before that in it."""
        low = bisect_right(self._offsets, first)
        high = len(self._offsets) if stop is None else bisect_left(self._offsets, stop, low)
        at = bisect_left(self._newest, timestamp, low, high) - 1
        return (self._offsets[at], self._newest[at]) if at >= low else (first, NO_TIMESTAMP)

    def forget_before(self, offset: int) -> None:
        at = bisect_left(self._offsets, offset)
        del self._offsets[:at], self._newest[:at]


class Walked:
    """Entries of a stretch that somebody walks over, one after the other: every few of them make a step."""

    def __init__(self, steps: TimeSteps, newest_before: int) -> None:
        self._steps: TimeSteps | None = steps
        self._newest = newest_before
        self._entries = 0

    def see(self, offset: int, newest: int | None) -> None:
        """The next entry, and the newest of its times. If that is not known, nothing is known from there on."""
        if newest is None:
            self._steps = None
        if self._steps is None or newest is None:
            return
        if self._entries == STEP_ENTRIES:
            self._steps.add(offset, self._newest)
            self._entries = 0
        self._entries += 1
        self._newest = max(self._newest, newest)
