"""A store that comes back older than it was, or loses whole logs, under load: what brokers have in memory restores it.

Two nodes and groups that commit: each node looks at partitions of the other one, and must not be in the way of its
leader, who alone has the records.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from signal import Signals

import pytest
import redis

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.broker.peers import connect, create_topic
from tests.broker_process import wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.test_everything_killed import PARTITIONS, PLACES, TOPICS, Cluster
from tests.faults.test_two_brokers import leaders_of, nodes_of
from tests.faults.witnesses import Group, Sender, check

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

TIMES = 10


SLEEPS = 4
"""How often a node does."""


@pytest.fixture
def lease_ms() -> int:
    """Long: a partition that moves has its newest records in no memory."""
    return 10_000


@pytest.fixture
def cluster(start_broker: StartBroker, start_redis: StartRedis, lease_ms: int) -> Cluster:
    store = start_redis("always")
    brokers = [
        start_broker(redis=store.url, node_id=node_id, node_lease_ms=lease_ms, group_initial_rebalance_delay_ms=0)
        for node_id in (1, 2)
    ]
    wait_until(lambda: all(nodes_of(broker) == {1, 2} for broker in brokers), "the brokers do not know each other")
    with connect(brokers[0]) as connection:
        for topic, configs in TOPICS.items():
            create_topic(connection, topic, PARTITIONS, configs)
    return Cluster(brokers, store)


class Losses:
    """What the store loses, of a known seed."""

    def __init__(self, cluster: Cluster, senders: list[Sender], seed: int) -> None:
        self._store, self._senders = cluster.store, senders
        self.chance = random.Random(seed)

    def go_back(self) -> None:
        """To the files of some records ago."""
        directory = self._store.directory
        copy = directory.with_name("copy")
        self._store.send_signal(Signals.SIGSTOP)
        shutil.copytree(directory, copy)
        self._store.send_signal(Signals.SIGCONT)
        self.all_go_on(self.chance.choice([1, 5, 30]))
        self._store.stop(Signals.SIGKILL)
        shutil.rmtree(directory)
        copy.rename(directory)
        self._store.start()

    def delete_logs(self) -> None:
        with redis.Redis(port=self._store.port) as client:

            def logs() -> list[bytes]:
                return sorted(key for key in client.keys("*") if key.endswith((b":log", b":stream")))

            # What producers were told since may be of the time before the last logs were deleted.
            wait_until(lambda: len(logs()) == len(PLACES), "a deleted log does not come back")
            client.delete(*self.chance.sample(logs(), 2))

    def cut_connections(self) -> None:
        """Answers get lost: what went in all the same is read again."""
        with redis.Redis(port=self._store.port) as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def happen(self) -> None:
        self.chance.choice([self.go_back, self.delete_logs, self.cut_connections])()

    def all_go_on(self, more: int = 20) -> None:
        for sender in self._senders:
            sender.goes_on(more)


def run(cluster: Cluster, times: int, seed: int, happen: Callable[[Losses], object]) -> None:
    senders = [Sender(f"sender-{number}", cluster.addresses, PLACES, 0.005) for number in range(2)]
    groups = [Group(name, cluster.addresses, list(TOPICS), members) for name, members in {"two": 2, "one": 1}.items()]
    losses = Losses(cluster, senders, seed)
    try:
        for _ in range(times):
            losses.all_go_on()
            happen(losses)
        losses.all_go_on()
        for sender in senders:
            sender.stop()
        check(cluster.addresses, senders, groups)
        for broker in cluster.brokers:
            assert "the log has a gap" not in broker.log
    finally:
        for end in (*(sender.stop for sender in senders), *(group.stop for group in groups)):
            end()


@pytest.mark.parametrize("seed", range(2))
def test_what_a_store_loses_under_load_comes_back_as_it_was(cluster: Cluster, seed: int) -> None:
    run(cluster, TIMES, seed, Losses.happen)


@pytest.mark.parametrize("lease_ms", [2_000])
def test_what_a_store_loses_while_a_node_sleeps_comes_back_though_that_node_leads_again(cluster: Cluster) -> None:
    """The other one leads meanwhile, and alone has what was lost: the one that wakes up must not be in its way."""

    def sleep(losses: Losses) -> None:
        asleep, awake = losses.chance.sample(cluster.brokers, 2)
        node = awake.settings["node_id"]
        asleep.send_signal(Signals.SIGSTOP)
        for topic in TOPICS:
            wait_until(
                lambda topic=topic: set(leaders_of(awake, topic).values()) == {node},  # type: ignore[misc]
                "the partitions do not move",
            )
        losses.go_back()
        asleep.send_signal(Signals.SIGCONT)
        for topic in TOPICS:
            wait_until(
                lambda topic=topic: len(set(leaders_of(awake, topic).values())) == 2,  # type: ignore[misc]
                "the node that woke up does not lead again",
            )

    run(cluster, SLEEPS, 0, sleep)


def test_a_node_that_is_stopped_beside_an_older_store_writes_back_what_groups_committed(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    """It is alone, so nobody takes over from it: the next one starts from what is stored."""
    store = start_redis("always")
    broker = start_broker(redis=store.url)
    copy = store.directory.with_name("copy")
    with connect(broker) as connection:
        create_topic(connection, "orders")
        assert commit(connection, 1) == ErrorCode.NONE
        store.send_signal(Signals.SIGSTOP)
        shutil.copytree(store.directory, copy)
        store.send_signal(Signals.SIGCONT)
        assert commit(connection, 2) == ErrorCode.NONE
    store.stop(Signals.SIGKILL)
    shutil.rmtree(store.directory)
    copy.rename(store.directory)
    store.start()
    assert broker.stop() == 0
    broker.start()
    with connect(broker) as connection:
        wanted = OffsetFetchRequest(group_id="billing", topics=[OffsetFetchRequestTopic("orders", [0])])
        answer = connection.send_for(wanted, OffsetFetchResponse, 7)
    assert [one.committed_offset for one in answer.topics[0].partitions] == [2]


def commit(connection: BrokerConnection, offset: int) -> int:
    """Commits as a client without members does; the error code."""
    partitions = [OffsetCommitRequestPartition(0, offset)]
    request = OffsetCommitRequest(
        group_id="billing", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    )
    return connection.send_for(request, OffsetCommitResponse, 8).topics[0].partitions[0].error_code
