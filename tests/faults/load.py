"""The load that faults happen under, in both formats, and its end: everything is checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.broker.peers import connect, create_topic
from tests.broker_process import BrokerProcess
from tests.faults.witnesses import Gaps, Group, Place, Receiving, Sender, Sending, check, no_gaps

PARTITIONS = 4
FORMATS: dict[str, dict[str, str]] = {"orders": {}, "clicks": {"headrace.format": "stream"}}


class Load:
    """An idempotent producer and two groups. `Fault`s are methods of its subclasses."""

    topics: Mapping[str, Mapping[str, str]] = FORMATS
    """With their configs."""
    keys = 0
    """How many keys records have in turn; without any, records have none."""

    def __init__(self, brokers: Sequence[BrokerProcess], seed: int, pause_s: float = 0.01) -> None:
        self.brokers = brokers
        self.addresses = self.addresses_of(brokers)
        self.random = random.Random(seed)
        with connect(brokers[0]) as connection:
            for topic, configs in self.topics.items():
                create_topic(connection, topic, PARTITIONS, dict(configs))
        self.places: list[Place] = [(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        self.sender, self.groups = self.start_clients(pause_s)
        self.goes_on()

    def start_clients(self, pause_s: float) -> tuple[Sending, Sequence[Receiving]]:
        sender = Sender("one", self.addresses, self.places, pause_s, self.keys)
        return sender, [Group(name, self.addresses, list(self.topics), members=2) for name in ("first", "second")]

    def goes_on(self) -> None:
        """Returns once everything has made some progress."""
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
            self.check(gaps_of)
        finally:
            self.stop()

    def check(self, gaps_of: Gaps) -> None:
        check(self.addresses, [self.sender], self.groups, gaps_of)

    def stop(self) -> None:
        self.sender.stop()
        for group in self.groups:
            group.stop()
