"""A histogram as a list of counts: observing is a bisection and two additions, because every request does it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""From half a millisecond, a produce on a quiet machine, to a long poll's longest usual wait."""


class Exemplar(NamedTuple):
    """One observation whose trace was recorded."""

    trace_id: str
    value: float
    wall_s: float


class Histogram:
    """Counts of what was observed, by upper bound."""

    __slots__ = ("_bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[str, Exemplar] = {}
        """The latest by upper bound, as the text form has it."""

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def exemplify(self, exemplar: Exemplar) -> None:
        """Keeps an example of its bucket; it is counted by `observe`."""
        self.exemplars[self._names()[bisect_left(self._bounds, exemplar.value)]] = exemplar

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """Upper bound and how many were not above it, as the text form has them; the last bound is infinite."""
        sum_so_far = 0
        for bound, count in zip(self._names(), self.counts, strict=True):
            sum_so_far += count
            yield bound, sum_so_far

    def _names(self) -> tuple[str, ...]:
        return (*map(str, self._bounds), "+Inf")
