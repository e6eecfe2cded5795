"""Three nodes on one store under load in both formats, and the witnesses who tell what it was like for clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from tests.broker.peers import connect, create_topic
from tests.broker_process import RedisProcess, wait_until
from tests.conftest import StartBroker
from tests.faults.test_two_brokers import leaders_of, nodes_of
from tests.faults.witnesses import Group, Place, Sender, check

PARTITIONS = 6
TOPICS = {"as-log": {"headrace.format": "log"}, "as-stream": {"headrace.format": "stream"}}
PLACES: list[Place] = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
LONG_LEASE_MS = 60_000
"""Longer than any test waits for a state: whatever goes on did not wait for a lease."""


class Nodes:
    """The nodes, by id."""

    def __init__(self, start_broker: StartBroker, store: RedisProcess, count: int = 3, **settings: object) -> None:
        quick = {"group_initial_rebalance_delay_ms": 0}
        self.all = [start_broker(redis=store.url, node_id=id, **(quick | settings)) for id in range(count)]
        self.know_each_other()
        with connect(self.all[0]) as connection:
            for topic, configs in TOPICS.items():
                create_topic(connection, topic, PARTITIONS, configs=configs)

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.all)

    def know_each_other(self) -> None:
        """Returns once those that run have all of them, and no other one, in their metadata."""
        running = {id: broker for id, broker in enumerate(self.all) if broker.is_running}
        wait_until(
            lambda: all(nodes_of(broker) == running.keys() for broker in running.values()),
            "the nodes do not know each other",
        )

    def led_by(self, id: int) -> list[Place]:
        """The partitions of a node."""
        other = next(broker for broker in self.all if broker.is_running)
        leaders = {(topic, number): leader for topic in TOPICS for number, leader in leaders_of(other, topic).items()}
        return [place for place in PLACES if leaders[place] == id]


class Load:
    """An idempotent producer and a group on all partitions."""

    def __init__(self, addresses: str, pause_s: float) -> None:
        self.addresses = addresses
        self.sender = Sender("sender", addresses, PLACES, pause_s)
        self.group = Group("group", addresses, list(TOPICS), members=2)

    def settles(self) -> None:
        """Returns once records flow through every partition to the group."""
        self.sender.goes_on()
        goal = {place: max(self.sender.told[place].values()) for place in PLACES}
        wait_until(lambda: all(goal[place] in self.group.delivered[place] for place in PLACES), "the group is stuck")

    def pauses_of(self, places: list[Place]) -> list[float]:
        return sorted(self.sender.longest_pause_s[place] for place in places)

    def median_pause_s(self, places: list[Place]) -> float:
        return median(self.pauses_of(places))


@contextmanager
def under_load(nodes: Nodes, pause_s: float = 0.02) -> Iterator[Load]:
    """Clients that go on whatever happens; in the end everything is checked."""
    load = Load(nodes.addresses, pause_s)
    try:
        load.group.forms(PLACES)  # later than the first records: its first member may have been alone for a while
        load.settles()
        yield load
        load.settles()
    finally:
        load.sender.stop()
        try:
            check(nodes.addresses, [load.sender], [load.group])
        finally:
            load.group.stop()
