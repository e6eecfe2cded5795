"""Which gaps in a producer's sequence are accepted: what it skips was lost, or may still be on its way.

A producer that goes on behind batches that the store lost has to skip them, and one that is not known any more begins
in the middle. But the same happens to a producer whose first batches were refused for now while the next one was on its
way: accepted, that one would leave out the others for good, and librdkafka takes them for delivered. So a gap is
refused for now until whatever was on its way has come, and the producer sends all of them again, in order.

The time for that ends between two batches in flight: the first was refused, the next one comes later. So whoever skips
goes on with the first batch that was refused, unless that one has not come again for as long as clients wait for an
answer: on a busy machine the next one may lie in a queue for longer than a lease.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Due = Callable[[], bool]
"""Whether nothing can be on its way any more."""

_MOST_WAITING = 1_000
"""So many producers are waited for; of more, the first to come have to wait again."""
_SEQUENCE_MASK = (1 << 31) - 1


class Skip(msgspec.Struct, frozen=True):
    """A batch that does not follow its producer's last one."""

    producer_id: int
    behind: tuple[int, ...]
    """The epoch of the batch, and what it is behind: a skip that follows on something else is another one."""
    first: int
    """Its sequence."""


class _Waiting(msgspec.Struct):
    """A producer that waits until it may go on."""

    behind: tuple[int, ...]
    first: int
    """The first sequence that was refused."""
    is_due: Due
    is_given_up: Due
    """Whether the producer does not send that one any more."""


class SequenceGaps:
    """The gaps of one partition."""

    def __init__(self, after_requests: Callable[[bool], Due] = lambda are_slow: lambda: True) -> None:
        self._after_requests = after_requests
        self._lost_end = 0
        self._waiting: dict[int, _Waiting] = {}

    def lose(self, end: int) -> None:
        """Batches below an offset may have been lost."""
        self._lost_end = end

    def may_follow(self, last_base: int) -> bool:
        """Whether a producer may have lost batches behind its last one: it has sent none since others were lost."""
        return last_base < self._lost_end

    def admits(self, skip: Skip) -> bool:
        """Whether a producer may go on with a batch."""
        waiting = self._waiting.get(skip.producer_id)
        if waiting is None or waiting.behind != skip.behind:
            return self._begin(skip)
        if is_ahead(skip.first, waiting.first):
            return waiting.is_given_up()
        waiting.first, waiting.is_given_up = skip.first, self._after_requests(True)
        return waiting.is_due()

    def know(self, producer_id: int) -> None:
        """A batch of a producer that was not known is in the log."""
        self._waiting.pop(producer_id, None)

    def _begin(self, skip: Skip) -> bool:
        self._waiting.pop(skip.producer_id, None)
        if len(self._waiting) >= _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        due, given_up = self._after_requests(False), self._after_requests(True)
        self._waiting[skip.producer_id] = _Waiting(skip.behind, skip.first, due, given_up)
        return due()


def is_ahead(sequence: int, other: int) -> bool:
    """Whether a sequence is behind another one in time: after the highest they begin at 0 again."""
    return 0 < sequence - other & _SEQUENCE_MASK < _SEQUENCE_MASK // 2
