"""The tail cache: the newest entries of all partitions, for consumers and for restoring lost records.

One limit for all partitions: the oldest entries are evicted first. A partition's cached entries are always its last
ones, without a hole, so a reader is served from here exactly when its offset is not before the first of them.

This is what a page cache is to Apache Kafka: a consumer that starts at the beginning of a topic costs half the CPU when
its batches are still here, and the store none. So the limit is a share of the machine's memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from headrace.store.partition.entries import Batches, Entry, take
from headrace.wire.schema import Buffer

_DROPPED = Entry(-1, -1, b"", b"")

ENTRY_BYTES = 320
"""Overhead of an entry besides its batches, which is four times a batch of one short record.

Its tuple, numbers, token and places in three lists are 255 bytes as tracemalloc counts them; with what the lists keep
free and the allocator rounds up, resident memory grows by 290 while the cache fills and by 340 once it turns over.
"""

_MOST_ENTRIES = 100_000
"""However small they are: forgetting all of them at once takes tens of milliseconds of the event loop."""


def size_of(entry: Entry) -> int:
    """The memory an entry takes."""
    return ENTRY_BYTES + len(entry.data)


class Tail:
    """The cached entries of one partition, oldest first."""

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._bases: list[int] = []
        self._entries: list[Entry] = []
        self._first = 0
        """Where the list begins to count: what lies before is cut off now and then, not one by one."""
        self._size_bytes = 0
        self.stale = 0
        """How many of its places in the cache's order are of entries that it has forgotten: always the first ones."""

    def __len__(self) -> int:
        return len(self._entries) - self._first

    def add(self, entry: Entry) -> None:
        """Takes the newest entry. A hole before it makes the older ones useless to readers."""
        entries = self._entries
        if len(entries) > self._first and entries[-1].end != entry.base:
            self.clear()
        self._bases.append(entry.base)
        entries.append(entry)
        cache = self._cache
        cache.order.append(self)
        size_bytes = ENTRY_BYTES + len(entry.data)
        self._size_bytes += size_bytes
        cache.size_bytes += size_bytes
        if cache.size_bytes > cache.limit_bytes or len(cache.order) > cache.most_entries:
            cache.make_room()

    @property
    def first(self) -> Entry | None:
        """The oldest entry."""
        return self._entries[self._first] if len(self) else None

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        return self._entries[-1] if len(self) else None

    def holds(self, offset: int) -> bool:
        """Whether the cache holds everything from this offset on."""
        return len(self) > 0 and self._bases[self._first] <= offset

    def since(self, offset: int) -> Iterator[Entry]:
        """The entry that holds an offset, or the first one behind it, and all that follow."""
        at = max(bisect_right(self._bases, offset, self._first) - 1, self._first)
        return (self._entries[place] for place in range(at, len(self._entries)))

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches | None:
        """Batches from an offset on, as `take` cuts them; None if the cache does not hold all of them.

        A reader at the tail begins where an entry does, and has room for all that follow: they need no look inside.
        """
        bases, entries, first = self._bases, self._entries, self._first
        if len(entries) == first or bases[first] > offset or entries[-1].end <= offset:
            return None  # behind the last entry the log may have a gap, which only the store can tell
        at = bisect_right(bases, offset, first) - 1
        if bases[at] != offset:
            return take((entry.data for entry in self.since(offset)), offset, max_bytes, at_least_one)
        chunks: list[Buffer] = []
        size_bytes = 0
        for place in range(at, len(entries)):
            data = entries[place].data
            if size_bytes + len(data) > max_bytes:
                cut = take((data,), offset, max_bytes - size_bytes, at_least_one and not chunks)
                return Batches(chunks + cut.chunks, size_bytes + cut.size_bytes)
            chunks.append(data)
            size_bytes += len(data)
        return Batches(chunks, size_bytes)

    def drop_first(self) -> int:
        """Forgets the oldest entry, and returns its size."""
        dropped, self._entries[self._first] = self._entries[self._first], _DROPPED
        self._first += 1
        if self._first * 2 > len(self._entries):
            del self._bases[: self._first], self._entries[: self._first]
            self._first = 0
        size_bytes = size_of(dropped)
        self._size_bytes -= size_bytes
        return size_bytes

    def clear(self) -> None:
        """Forgets all entries."""
        if len(self):
            self._cache.cleared(self, self._size_bytes)
        self._bases.clear()
        self._entries.clear()
        self._first = self._size_bytes = 0


class TailCache:
    """The bound that all tails share."""

    def __init__(self, limit_bytes: int, most_entries: int = _MOST_ENTRIES) -> None:
        self.limit_bytes, self.most_entries = limit_bytes, most_entries
        self.size_bytes = 0
        self.order: deque[Tail] = deque()
        """The tail of each entry, the oldest first."""
        self._stale = 0

    def make_room(self) -> None:
        """Drops the oldest entries, whatever their partition."""
        order = self.order
        while self.size_bytes > self.limit_bytes or len(order) - self._stale > self.most_entries:
            tail = order.popleft()
            if tail.stale:
                tail.stale -= 1
                self._stale -= 1
            else:
                self.size_bytes -= tail.drop_first()

    def cleared(self, tail: Tail, size_bytes: int) -> None:
        """Told that a tail forgets all it has. Its places go when the order is mostly of such."""
        self.size_bytes -= size_bytes
        tail.stale += len(tail)
        self._stale += len(tail)
        if self._stale * 2 > len(self.order):
            self.order = deque(one for one in self.order if not self._is_stale(one))

    def _is_stale(self, tail: Tail) -> bool:
        """Whether the next place of a tail is of an entry that is gone; each is asked about once, in order."""
        if not tail.stale:
            return False
        tail.stale -= 1
        self._stale -= 1
        return True
