"""Which gaps in a producer's sequence are accepted: what it skips was lost, or may still be on its way.

A producer that goes on behind batches that the store lost has to skip them, and one that is not known any more begins
in the middle. But the same happens to a producer whose first batches were refused for now while the next one was on its
way: accepted, that one would leave out the others for good, and librdkafka takes them for delivered. So a gap is
refused for now until whatever was on its way has come, and the producer sends all of them again, in order.
"""

from __future__ import annotations

from collections.abc import Callable

Due = Callable[[], bool]
"""Whether nothing can be on its way any more."""

_MOST_UNKNOWN = 1_000
"""So many producers are waited for; of more, the first to come have to wait again."""


class SequenceGaps:
    """The gaps of one partition."""

    def __init__(self, after_a_lease: Callable[[], Due] = lambda: lambda: True) -> None:
        self._after_a_lease = after_a_lease
        self._lost_end = 0
        self._nothing_comes: Due = lambda: False
        self._unknown: dict[int, Due] = {}

    def lose(self, end: int, nothing_comes: Due) -> None:
        """Batches below an offset may have been lost."""
        self._lost_end, self._nothing_comes = end, nothing_comes

    def may_follow(self, last_base: int) -> bool:
        """Whether a producer may have lost batches behind its last one: it has sent none since others were lost."""
        return last_base < self._lost_end

    def is_due(self) -> bool:
        """Whether a producer that has lost batches may go on."""
        return self._nothing_comes()

    def admits(self, producer_id: int) -> bool:
        """Whether a producer that is not known may begin in the middle of its sequence."""
        due = self._unknown.get(producer_id)
        if due is None:
            if len(self._unknown) >= _MOST_UNKNOWN:
                del self._unknown[next(iter(self._unknown))]
            due = self._unknown[producer_id] = self._after_a_lease()
        return due()

    def know(self, producer_id: int) -> None:
        """A producer's first batch is in the log."""
        self._unknown.pop(producer_id, None)
