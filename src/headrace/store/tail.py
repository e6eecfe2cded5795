"""The newest entries of all partitions, in memory: what most consumers read, and what a store that lost them gets back.

One bound for all partitions: the oldest entries leave first. A partition's entries here are always its last ones,
without a hole, so a reader is served from here exactly when its offset is not before the first of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from headrace.store.entries import Entry


class Tail:
    """The cached entries of one partition, oldest first."""

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self.bases: list[int] = []
        self.entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Takes the newest entry. A hole before it makes the older ones useless to readers."""
        if self.entries and self.entries[-1].end != entry.base:
            self.clear()
        self.bases.append(entry.base)
        self.entries.append(entry)
        self._cache.added(self, entry)

    def holds(self, offset: int) -> bool:
        """Whether reading from this offset on needs nothing but the cache."""
        return bool(self.bases) and self.bases[0] <= offset

    def since(self, offset: int) -> int:
        """The place of the entry that holds an offset."""
        return bisect_right(self.bases, offset) - 1

    def drop_first(self) -> None:
        """Forgets the oldest entry."""
        del self.bases[0], self.entries[0]

    def clear(self) -> None:
        """Forgets all entries."""
        for entry in self.entries:
            self._cache.size_bytes -= len(entry.data)
        self.bases.clear()
        self.entries.clear()


class TailCache:
    """The bound that all tails share."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._order: deque[tuple[Tail, int]] = deque()

    def added(self, tail: Tail, entry: Entry) -> None:
        """Makes room by dropping what was added first, of whichever partition."""
        self._order.append((tail, entry.base))
        self.size_bytes += len(entry.data)
        while self.size_bytes > self.limit_bytes and self._order:
            oldest, base = self._order.popleft()
            if oldest.bases and oldest.bases[0] == base:
                self.size_bytes -= len(oldest.entries[0].data)
                oldest.drop_first()
