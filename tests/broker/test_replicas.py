"""Replication factors and assignments on several brokers: the nodes that would lead next are shown as replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.administrator import Administrator, new_topic, versions
from tests.broker.peers import batch_of, connect, metadata, produce
from tests.broker_process import BrokerProcess, RedisProcess, wait_until

NODES = [1, 2, 3]
LEASE_MS = 1_500
MANY = 100
"""Partitions: a node that leads none of so many is not to be expected in the life of this test."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, BrokerProcess]]:
    """Three brokers on one Redis that know each other, by node id."""
    folder = tmp_path_factory.mktemp("replicas")
    redis = RedisProcess(folder / "redis", "everysec")
    started: dict[int, BrokerProcess] = {}
    try:
        redis.start()
        for node in NODES:
            process = BrokerProcess(folder / f"broker{node}", redis=redis.url, node_id=node, node_lease_ms=LEASE_MS)
            started[node] = process.start()
        wait_until(lambda: all(nodes_of(each) == set(NODES) for each in started.values()), "they do not meet")
        yield started
    finally:
        for process in started.values():
            process.end()
        redis.end()


@pytest.fixture
def administrator(cluster: dict[int, BrokerProcess]) -> Iterator[Administrator]:
    with connect(cluster[1]) as connection:
        yield Administrator(connection)


def nodes_of(broker: BrokerProcess) -> set[int]:
    """The nodes that a broker names."""
    with connect(broker) as connection:
        return {node.node_id for node in metadata(connection).brokers}


def replicas_of(broker: BrokerProcess, topic: str) -> dict[int, list[int]]:
    """Partition -> its replicas, the leader first, as Metadata and DescribeTopicPartitions of a broker show them."""
    with connect(broker) as connection:
        (found,) = metadata(connection, topic).topics
        request = DescribeTopicPartitionsRequest([TopicRequest(topic)])
        (described,) = connection.send_for(request, DescribeTopicPartitionsResponse, 0).topics
    rows = [
        (p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in found.partitions
    ]
    assert rows == [
        (p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in described.partitions
    ]
    for _, leader, replicas, in_sync, offline in rows:
        assert (leader, in_sync, offline) == (replicas[0], replicas, [])
    return {number: replicas for number, _, replicas, _, _ in rows}


@pytest.mark.parametrize("version", versions(19))
def test_a_topic_has_as_many_replicas_as_asked_for(
    cluster: dict[int, BrokerProcess], administrator: Administrator, topic: str, version: int
) -> None:
    for factor in NODES:
        name = f"{topic}-{factor}"
        result = administrator.create(new_topic(name, MANY, factor), version)
        assert (result.error_code, result.error_message) == (0, None)
        if version >= 5:
            assert result.replication_factor == factor
        shown = replicas_of(cluster[1], name)
        assert all(len(set(nodes)) == factor and set(nodes) <= set(NODES) for nodes in shown.values())
        assert {nodes[0] for nodes in shown.values()} == set(NODES)
        assert shown == replicas_of(cluster[2], name) == replicas_of(cluster[3], name)


def test_more_replicas_than_nodes_are_refused_in_kafka_s_words(administrator: Administrator, topic: str) -> None:
    for validate_only in (True, False):
        result = administrator.create(new_topic(topic, 1, 4), validate_only=validate_only)
        assert (result.error_code, result.error_message) == (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because "
            "only 3 broker(s) are registered.",
        )


def test_new_partitions_have_as_many_replicas_as_the_others(
    cluster: dict[int, BrokerProcess], administrator: Administrator, topic: str
) -> None:
    administrator.create(new_topic(topic, 2, 3))
    assert administrator.add_partitions(topic, 5) == (0, None)
    assert [len(nodes) for nodes in replicas_of(cluster[2], topic).values()] == [3] * 5


def test_nodes_chosen_by_hand_are_the_replicas_and_the_first_of_them_leads(
    cluster: dict[int, BrokerProcess], administrator: Administrator, topic: str
) -> None:
    chosen = {0: [3, 1], 1: [2, 3], 2: [1, 2]}
    result = administrator.create(new_topic(topic, -1, -1, assignments=chosen))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 2)
    assert administrator.add_partitions(topic, 5, assignments=[[3, 2], [1, 3]]) == (0, None)
    chosen |= {3: [3, 2], 4: [1, 3]}
    for broker in cluster.values():
        assert replicas_of(broker, topic) == chosen
    for number, nodes in chosen.items():
        with connect(cluster[nodes[0]]) as connection:
            assert produce(connection, topic, {number: batch_of(b"x")})[number].error_code == 0
        with connect(cluster[nodes[1]]) as connection:
            refused = produce(connection, topic, {number: batch_of(b"x")})[number].error_code
            assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partitions_with_different_numbers_of_replicas_are_refused(administrator: Administrator, topic: str) -> None:
    result = administrator.create(new_topic(topic, -1, -1, assignments={0: [1, 2], 1: [3]}))
    words = "replica(s), but this is not consistent with previous partitions, which have"
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert f"a partition with 1 {words} 2 replica(s)." in (result.error_message or "")
    administrator.create(new_topic(topic, 1, 2))
    code, message = administrator.add_partitions(topic, 2, assignments=[[1, 2, 3]])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert f"a partition with 3 {words} 2 replica(s)." in (message or "")


def test_a_broker_that_leaves_is_no_replica_and_the_next_one_leads(
    cluster: dict[int, BrokerProcess], administrator: Administrator, topic: str
) -> None:
    assert administrator.create(new_topic(topic, 12, 3)).error_code == 0
    before = replicas_of(cluster[1], topic)
    cluster[3].stop()
    wait_until(lambda: nodes_of(cluster[1]) == nodes_of(cluster[2]) == {1, 2}, "the broker that left is still there")
    after = replicas_of(cluster[2], topic)
    assert after == replicas_of(cluster[1], topic)
    assert {n: set(ids) for n, ids in after.items()} == {n: set(ids) - {3} for n, ids in before.items()}
    # Which of the two leads depends on the topic's id, and on what each has already: at most 1.25 times its share.
    assert max(Counter(ids[0] for ids in after.values()).values()) <= 8
    cluster[3].start()
    wait_until(lambda: all(nodes_of(each) == set(NODES) for each in cluster.values()), "the broker is not back")
    assert replicas_of(cluster[1], topic) == before
