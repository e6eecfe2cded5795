"""The load on compacted topics of both formats: the last value of each key has to stay.

Nodes compact all the time, so whatever fails does so in the middle of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.broker_process import wait_until
from tests.faults.load import FORMATS, Load
from tests.faults.witnesses import Gaps, Place, read_log

COMPACTING: Mapping[str, int] = {"compaction_check_interval_ms": 100}
"""Settings of nodes that compact soon."""
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class Compacted(Load):
    topics = {topic: configs | _COMPACT for topic, configs in FORMATS.items()}
    keys = 50

    def check(self, gaps_of: Gaps) -> None:
        failures = [*self.sender.failures, *(failure for group in self.groups for failure in group.failures)]
        assert not failures, failures[:5]
        for place in self.places:
            self._check(place)

    def _check(self, place: Place) -> None:
        """What stays, and what groups got, is where it was said to be; the last value of each key stays."""
        told, unplaced = self.sender.told[place], self.sender.unplaced[place]
        assert sorted([*told, *unplaced]) == list(range(self.sender.sent))
        assert sorted(told.values()) == [told[number] for number in sorted(told)], place
        number_at = {offset: number for number, offset in told.items()}
        assert len(number_at) == len(told), place
        last = set(range(self.sender.sent - self.keys, self.sender.sent))
        wait_until(lambda: len(read_log(self.addresses, place)) < 4 * self.keys, f"{place} is not compacted", 60)
        for found in (read_log(self.addresses, place), *(group.delivered[place] for group in self.groups)):
            wait_until(lambda found=found: last <= set(_numbers(found).values()), f"{place}: last values are missing")  # type: ignore[misc]
            numbers = _numbers(found)
            assert len(set(numbers.values())) == len(numbers), f"{place}: doubled"
            assert {at: number for at, number in numbers.items() if number not in unplaced}.items() <= number_at.items()


def _numbers(found: dict[int, bytes]) -> dict[int, int]:
    """The number at each offset."""
    return {at: int(value.split(b" ")[1]) for at, value in dict(found).items()}
