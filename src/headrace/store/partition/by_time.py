"""Lookups by time: the index gives the spans of the log to search, a format searches them.

The index describes everything that was ever in a span. If the records it means were deleted, the search continues after
the span or in the one with the next highest time, and the index is corrected, so that this costs one search only.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from headrace.store.partition.index import Index, Stretch
from headrace.store.partition.time_steps import Walked
from headrace.wire.records import NO_TIMESTAMP

Found = tuple[int, int]
"""Offset and timestamp of a record."""


class Looks(Protocol):
    """Implemented by each format: reads a stretch, and knows which of its records are left."""

    @abstractmethod
    async def first_in(self, stretch: Stretch, timestamp: int, walked: Walked) -> Found | None:
        """The first record at or after a time; what is read on the way is shown to `walked`."""

    @abstractmethod
    async def newest_in(self, stretch: Stretch) -> Found | None:
        """The first record of the highest time, which may be that of a record without one; None if none is left."""


async def find_first(index: Index, start: int, timestamp: int, looks: Looks) -> Found | None:
    """The first record from an offset on that is at or after a time."""
    while (stretch := index.stretch_as_late(timestamp, start)) is not None:
        if (found := await looks.first_in(stretch, timestamp, Walked(index.steps, stretch.before))) is not None:
            return found
        if stretch.stop is None:
            break
        start = stretch.stop
    return None


async def find_newest(index: Index, start: int, looks: Looks) -> Found | None:
    """The first record of the highest time from an offset on; the first of all where none has a time, as in Kafka."""
    last = index.open_stretch()
    best = await looks.newest_in(last) if last is not None else None
    while (stretch := index.newest_stretch(start)) is not None:
        if best is not None and best[1] > stretch.newest:
            break
        found = await looks.newest_in(stretch)
        if found is not None and found[1] >= stretch.newest:
            return found
        index.correct(stretch, found[1] if found is not None else NO_TIMESTAMP)
    if best is None or best[1] == NO_TIMESTAMP:
        first = index.stretch_at(start)
        best = (await looks.newest_in(first) if first is not None else None) or best
    return best


class Newest:
    """The first of the records with the highest time, of those shown so far."""

    def __init__(self) -> None:
        self.found: Found | None = None

    def see(self, offset: int, timestamp: int) -> None:
        """A time before 1970 is none."""
        if self.found is None or timestamp > self.found[1]:
            self.found = offset, max(timestamp, NO_TIMESTAMP)
