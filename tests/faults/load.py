"""The load that faults happen under, in both formats, and its end: everything is checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.broker.peers import connect, create_topic
from tests.broker_process import BrokerProcess
from tests.faults.witnesses import Gaps, Group, Place, Sender, check, no_gaps

PARTITIONS = 4
FORMATS: dict[str, dict[str, str]] = {"orders": {}, "clicks": {"headrace.format": "stream"}}
PLACES: list[Place] = [(topic, number) for topic in FORMATS for number in range(PARTITIONS)]


class Load:
    """An idempotent producer and two groups. `Fault`s are methods of its subclasses."""

    def __init__(self, brokers: Sequence[BrokerProcess], seed: int, pause_s: float = 0.01) -> None:
        self.brokers = brokers
        self.addresses = self.addresses_of(brokers)
        self.random = random.Random(seed)
        with connect(brokers[0]) as connection:
            for topic, configs in FORMATS.items():
                create_topic(connection, topic, PARTITIONS, configs)
        self.sender = Sender("one", self.addresses, PLACES, pause_s)
        self.groups = [Group(name, self.addresses, list(FORMATS), members=2) for name in ("first", "second")]
        self.sender.goes_on()

    def addresses_of(self, brokers: Sequence[BrokerProcess]) -> str:
        return ",".join(broker.address for broker in brokers)

    def shuffled(self, faults: Sequence[Any]) -> list[Any]:
        return self.random.sample(faults, len(faults))

    def run(self, faults: Sequence[Callable[[Any], object]], gaps_of: Gaps = no_gaps) -> None:
        """Has faults happen one after the other, then checks everything."""
        try:
            for fault in faults:
                print(f"{time.monotonic():.1f} {fault.__name__}")  # shown where something fails
                fault(self)
            self.sender.stop()
            check(self.addresses, [self.sender], self.groups, gaps_of)
        finally:
            self.sender.stop()
            for group in self.groups:
                group.stop()
