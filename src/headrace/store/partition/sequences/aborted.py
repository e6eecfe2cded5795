"""The aborted transactions of a partition, whose records read_committed consumers skip.

Each row has the offsets of its marker and its first record, its producer, and the last stable offset after the marker.
The list follows from the log; it is stored so that the log need not be read for it, and searched by offset: a fetch
costs what it finds, however long the list is.

Rows are in the order of their markers. A later marker's transaction began at or after the last stable offset of an
earlier row, so a search for transactions that began before an offset ends at the first row that was stable there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple


class Aborted(NamedTuple):
    """One aborted transaction."""

    marker: int
    first: int
    producer_id: int
    stable: int

    def value(self) -> bytes:
        """As it is stored, under the marker's offset."""
        return b"%d %d %d" % (self.first, self.producer_id, self.stable)


def parse(marker: int, value: bytes) -> Aborted:
    """ValueError if it is none."""
    first, producer_id, stable = value.split(b" ")
    return Aborted(marker, int(first), int(producer_id), int(stable))


class AbortedList:
    """The aborted transactions of one partition, and which of them are not stored yet."""

    def __init__(self, rows: Iterable[Aborted] = ()) -> None:
        self.rows = list(rows)
        self._markers = [row.marker for row in self.rows]
        self._unstored_from = len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: Aborted) -> None:
        """A marker that is in the log, behind all others."""
        if not self.rows or row.marker > self._markers[-1]:
            self.rows.append(row)
            self._markers.append(row.marker)

    def between(self, offset: int, end: int) -> list[Aborted]:
        """The aborted transactions with records from `offset` to `end`."""
        found: list[Aborted] = []
        for at in range(bisect_left(self._markers, offset), len(self.rows)):
            row = self.rows[at]
            if row.first < end:
                found.append(row)
            if row.stable >= end:
                break
        return found

    def unstored(self) -> list[Aborted]:
        """The rows that the store may lack."""
        return self.rows[self._unstored_from :]

    def stored(self, rows: list[Aborted]) -> None:
        """Told that the store has these, which `unstored` gave."""
        if rows:
            self._unstored_from = max(self._unstored_from, bisect_left(self._markers, rows[-1].marker) + 1)

    def store_again(self) -> None:
        """The store may have lost any of them."""
        self._unstored_from = 0

    def forget_before(self, offset: int) -> None:
        """Drops those whose markers were trimmed, and their records with them."""
        gone = bisect_left(self._markers, offset)
        if gone:
            del self.rows[:gone], self._markers[:gone]
            self._unstored_from = max(0, self._unstored_from - gone)
