"""The store and the brokers killed at any moment, over and over, in both formats: clients notice delays alone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from signal import Signals

import pytest

from tests.broker.peers import connect, create_topic
from tests.broker_process import BrokerProcess, RedisProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.test_two_brokers import leaders_of, nodes_of
from tests.faults.witnesses import Group, Place, Sender, check

PARTITIONS = 3
LEASE_MS = 1_500
TOPICS = {"as-log": {"headrace.format": "log"}, "as-stream": {"headrace.format": "stream"}}
PLACES: list[Place] = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]


class Cluster:
    """Two brokers on one store, and what can happen to them. When is left to chance, of a known seed."""

    def __init__(self, brokers: list[BrokerProcess], store: RedisProcess) -> None:
        self.brokers, self.store = brokers, store
        self._chance = random.Random()

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def kill_store(self) -> None:
        """Away for a moment, or for longer than the brokers let a batch wait."""
        self.store.stop(Signals.SIGKILL)
        self._moment(self._chance.choice([0.0, 0.3, 2.5]))
        self.store.start()

    def kill_broker(self) -> None:
        self._end_one(BrokerProcess.kill)

    def stop_broker(self) -> None:
        self._end_one(BrokerProcess.stop)

    def _end_one(self, end: Callable[[BrokerProcess], object]) -> None:
        """It is back at once; or the other one takes over, and may see the store restart, before it is."""
        one, other = self._chance.sample(self.brokers, 2)
        end(one)
        if self._chance.random() < 0.6:
            node = other.settings["node_id"]
            for topic in TOPICS:
                wait_until(
                    lambda topic=topic: set(leaders_of(other, topic).values()) == {node},  # type: ignore[misc]
                    "the partitions do not move",
                )
            self._moment(self._chance.random() / 2)
            if self._chance.random() < 0.5:
                self.store.stop(Signals.SIGKILL)
                self.store.start()
        one.start()

    def _moment(self, seconds: float) -> None:
        """Not a wait for a state: a fault has to come at any moment, and last for any time."""
        time.sleep(seconds)

    def suffer(self, seed: int, kills_each: int, stops: int, between: Callable[[], None]) -> None:
        """So many kills of the store, as many of brokers, and some that leave in order."""
        self._chance.seed(seed)
        faults = [self.kill_store, self.kill_broker] * kills_each + [self.stop_broker] * stops
        self._chance.shuffle(faults)
        for fault in faults:
            between()
            self._moment(self._chance.random() / 2)
            fault()
        between()


@pytest.fixture
def cluster(start_broker: StartBroker, start_redis: StartRedis) -> Cluster:
    store = start_redis("always")
    brokers = [
        start_broker(redis=store.url, node_id=node_id, node_lease_ms=LEASE_MS, group_initial_rebalance_delay_ms=0)
        for node_id in (1, 2)
    ]
    wait_until(lambda: all(nodes_of(broker) == {1, 2} for broker in brokers), "the brokers do not know each other")
    with connect(brokers[0]) as connection:
        for topic, configs in TOPICS.items():
            create_topic(connection, topic, PARTITIONS, configs)
    return Cluster(brokers, store)


def run(cluster: Cluster, seed: int, *, kills_each: int, stops: int, pause_s: float) -> None:
    senders = [Sender(f"sender-{number}", cluster.addresses, PLACES, pause_s) for number in range(2)]
    sizes = {"group-of-two": 2, "group-of-one": 1}
    groups = [Group(name, cluster.addresses, list(TOPICS), members) for name, members in sizes.items()]

    def all_go_on() -> None:
        for sender in senders:
            sender.goes_on()

    try:
        cluster.suffer(seed, kills_each, stops, all_go_on)
        for sender in senders:
            sender.stop()
        check(cluster.addresses, senders, groups)
    finally:
        for end in (*(sender.stop for sender in senders), *(group.stop for group in groups)):
            end()


def test_a_few_kills_lose_double_and_reorder_nothing(cluster: Cluster) -> None:
    run(cluster, seed=12, kills_each=2, stops=1, pause_s=0.02)


@pytest.mark.faults
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(2))
def test_fifteen_kills_of_the_store_and_of_brokers_lose_double_and_reorder_nothing(cluster: Cluster, seed: int) -> None:
    run(cluster, seed, kills_each=15, stops=4, pause_s=0.005)
