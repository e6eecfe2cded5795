"""The latest verdicts of this node's transactional ids, in its memory.

An id's document has its last verdict alone. If the store goes back and a partition's leader dies, the marker of an
earlier transaction may be lost while its records are not, and whichever marker comes next ends it: what was aborted
would be committed with the next transaction. So the owner ends these with their own verdicts first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headrace.broker.owned.contract import Name
from headrace.store.partition.sequences.producers import KnownProducer, Producers
from headrace.transactions.state import Ending

_KEPT = 10_000
"""Of all ids together: the last seconds of a busy node."""

Place = tuple[str, int]
"""Topic id and number of a partition."""


class LatestVerdicts:
    """Those that were spread, in their order."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._order: deque[Name] = deque()
        self._by_name: dict[Name, deque[Ending]] = {}

    def add(self, name: Name, ending: Ending) -> None:
        """Remembers a verdict, and forgets the oldest one."""
        if not ending.partitions:
            return
        known = self._by_name.setdefault(name, deque())
        if known and known[-1].number >= ending.number:
            return
        known.append(ending)
        self._order.append(name)
        if len(self._order) > self._kept:
            self._forget_oldest(self._order.popleft())

    def _forget_oldest(self, name: Name) -> None:
        known = self._by_name[name]
        known.popleft()
        if not known:
            del self._by_name[name]

    def before(self, name: Name, last: Ending) -> list[Ending]:
        """The verdicts on a producer before its last one."""
        known = self._by_name.get(name, ())
        return [one for one in known if one.number < last.number and one.producer_id == last.producer_id]


def places_of(endings: Sequence[Ending]) -> list[Place]:
    """All partitions of some transactions, each once."""
    return list(dict.fromkeys(place for ending in endings for place in ending.partitions))


def first_due(endings: Sequence[Ending], place: Place, producers: Producers, producer_id: int) -> Ending | None:
    """Whose records are open in a partition: the first of these transactions there that no marker has ended."""
    known = producers.by_id.get(producer_id)
    if known is None or producer_id not in producers.open:
        return None
    return next((one for one in endings if place in one.partitions and _is_due(one, known)), None)


def _is_due(ending: Ending, known: KnownProducer) -> bool:
    """A marker has the epoch of the records before it, with version 2 a higher one."""
    is_later = ending.epoch > known.epoch or (ending.version == 1 and ending.epoch == known.epoch)
    return is_later and ending.number > known.ended
