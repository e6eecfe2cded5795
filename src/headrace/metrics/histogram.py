"""A histogram as a list of counts: observing is a bisection and two additions, because every request does it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From half a millisecond, a produce on a quiet machine, to a long poll's longest usual wait."""


class Histogram:
    """Counts of what was observed, by upper bound."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """Upper bound and how many were not above it, as the text form has them; the last bound is infinite."""
        sum_so_far = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            sum_so_far += count
            yield bound, sum_so_far
