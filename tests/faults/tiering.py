"""The load on a tiered topic: records that left Redis, and those that did not, have to stay readable.

It is archived all the time by the parts that Spark's tasks use, and nodes leave records to the lake as soon as they
may. The format `stream` cannot be tiered.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.wire.errors import KafkaError
from headrace.wire.special_times import EARLIEST
from tests.broker_process import wait_until
from tests.faults.load import Load
from tests.faults.witnesses import Gaps, Receiving, Sending, read_log
from tests.lake.local_archive import archive_locally
from tests.tiered import CONFIGS, EARLIEST_LOCAL

TOPIC = "orders"


class Archiving(threading.Thread):
    """The archive, again and again; what fails is tried again."""

    def __init__(self, addresses: str, lake: Path) -> None:
        super().__init__(name="archiving", daemon=True)
        self.ended, self.rounds = threading.Event(), 0
        self._addresses, self._lake = addresses, lake

    def run(self) -> None:
        while not self.ended.wait(1.0):  # each round is a commit with a file a partition
            try:
                archive_locally(self._addresses, self._lake, TOPIC)
                self.rounds += 1
            except (KafkaError, BrokerUnreachable, OSError, AssertionError) as error:
                print(f"not archived: {error}")  # shown where something fails


class Tiered(Load):
    topics = {TOPIC: CONFIGS}

    def __init__(self, lake: Path, /, *others: Any, **settings: Any) -> None:
        self._lake = lake
        super().__init__(*others, **settings)

    def start_clients(self, pause_s: float) -> tuple[Sending, Sequence[Receiving]]:
        self.archiving = Archiving(self.addresses, self._lake)
        self.archiving.start()
        return super().start_clients(pause_s)

    def goes_on(self) -> None:
        """Records come in, are archived and leave Redis; a reader finds all of a partition from its first one on."""
        super().goes_on()
        place = self.random.choice(self.places)
        told = dict(self.sender.told[place])
        end, rounds = max(told.values()), self.archiving.rounds + 2
        wait_until(lambda: self.archiving.rounds >= rounds, "nothing is archived", 60)
        wait_until(lambda: self._start(place[1], EARLIEST_LOCAL) > end, f"{place} stays in Redis", 60)
        found = read_log(self.addresses, place, end)
        numbers = [int(value.split(b" ")[1]) for value in found.values()]
        assert numbers == list(range(len(numbers)))
        assert told.items() <= dict(zip(numbers, found, strict=True)).items()

    def _start(self, partition: int, which: int) -> int:
        try:
            with Cluster(self.addresses) as cluster:
                return Admin(cluster).list_offsets({(TOPIC, partition): which})[TOPIC, partition].offset
        except (KafkaError, BrokerUnreachable, OSError):
            return -1  # its leader has just changed

    def check(self, gaps_of: Gaps) -> None:
        self.archiving.ended.set()
        self.archiving.join()
        assert [self._start(partition, EARLIEST) for _, partition in self.places] == [0] * len(self.places)
        super().check(gaps_of)

    def stop(self) -> None:
        self.archiving.ended.set()
        super().stop()
