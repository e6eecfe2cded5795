"""DescribeCluster, DescribeTopicPartitions and DescribeLogDirs over TCP, in every version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from headrace.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.administrator import Administrator, new_topic, versions
from tests.broker.peers import batch_of, connect, produce
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker, StartRedis

ENDPOINT_TYPE_SINCE, SPACE_SINCE = 1, 4
NOT_ASKED = -(1 << 31)


@pytest.mark.parametrize("version", versions(60))
def test_the_cluster_is_described(administrator: Administrator, broker: BrokerProcess, version: int) -> None:
    request = DescribeClusterRequest(include_fenced_brokers=True)
    found = administrator.connection.send_for(request, DescribeClusterResponse, version)
    assert (found.error_code, found.error_message) == (0, None)
    assert len(found.cluster_id) == 22
    (node,) = found.brokers
    assert (node.broker_id, f"{node.host}:{node.port}", node.is_fenced) == (0, broker.address, False)
    assert found.controller_id == node.broker_id
    assert found.cluster_authorized_operations == NOT_ASKED
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    found = administrator.connection.send_for(request, DescribeClusterResponse, version)
    assert found.cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (7, 115)],
)
def test_there_are_only_brokers_to_describe(administrator: Administrator, endpoint_type: int, code: int) -> None:
    for version in (1, 2):
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        found = administrator.connection.send_for(request, DescribeClusterResponse, version)
        assert (found.error_code, found.brokers) == (code, [])
        assert found.error_message


def describe_pages(administrator: Administrator, topics: list[str], limit: int) -> list[list[tuple[str | None, int]]]:
    """Topic and partition of each row, page by page."""
    pages, cursor = [], None
    while True:
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in topics], limit, cursor)
        answer = administrator.connection.send_for(request, DescribeTopicPartitionsResponse, 0)
        pages.append([(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions])
        if answer.next_cursor is None:
            return pages
        cursor = Cursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 2_000])
def test_pages_of_partitions_follow_one_another(three_topics: Administrator, limit: int) -> None:
    rows = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]
    pages = describe_pages(three_topics, [], limit)
    assert [row for page in pages for row in page] == rows
    assert all(len(page) == limit for page in pages[:-1])
    named = describe_pages(three_topics, ["c", "a"], limit)
    assert [row for page in named for row in page] == [row for row in rows if row[0] != "b"]


@pytest.fixture(scope="module")
def three_topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administrator]:
    """A broker with nothing but topics a, b and c."""
    process = BrokerProcess(tmp_path_factory.mktemp("pages") / "data").start()
    with connect(process) as connection:
        administrator = Administrator(connection)
        administrator.create_all([new_topic("c", 2), new_topic("a", 3), new_topic("b", 1)])
        yield administrator
    process.end()


def test_a_limit_below_one_means_one(three_topics: Administrator) -> None:
    assert len(describe_pages(three_topics, ["a"], -5)) == 3


def test_a_partition_is_described_whole(administrator: Administrator, topic: str) -> None:
    created = administrator.create(topic)
    request = DescribeTopicPartitionsRequest([TopicRequest(topic), TopicRequest("no-such"), TopicRequest("a b")])
    answer = administrator.connection.send_for(request, DescribeTopicPartitionsResponse, 0)
    bad, unknown, found = answer.topics
    assert (bad.name, bad.error_code) == ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert (unknown.name, unknown.error_code) == ("no-such", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (found.error_code, found.topic_id, found.is_internal) == (0, created.topic_id, False)
    assert found.topic_authorized_operations > 0
    # Kafka says of a topic that is not there, too, what one may do with it.
    assert {bad.topic_authorized_operations, unknown.topic_authorized_operations} == {found.topic_authorized_operations}
    (partition,) = found.partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (0, [0], [0])
    assert (partition.eligible_leader_replicas, partition.last_known_elr, partition.offline_replicas) == ([], [], [])


@pytest.mark.parametrize(("topics", "cursor"), [(["a"], Cursor("b", 0)), (["a"], Cursor("a", -1))])
def test_a_cursor_that_makes_no_sense_is_refused(
    three_topics: Administrator, topics: list[str], cursor: Cursor
) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in topics], 10, cursor)
    answer = three_topics.connection.send_for(request, DescribeTopicPartitionsResponse, 0)
    assert [(t.name, t.error_code) for t in answer.topics] == [("a", ErrorCode.INVALID_REQUEST)]


def log_dir(
    administrator: Administrator, topics: list[DescribableLogDirTopic] | None, version: int = 5
) -> DescribeLogDirsResult:
    answer = administrator.connection.send_for(DescribeLogDirsRequest(topics), DescribeLogDirsResponse, version)
    (found,) = answer.results
    assert (answer.error_code, found.error_code) == (0, 0)
    return found


@pytest.mark.parametrize("version", versions(35))
def test_the_sizes_of_partitions_are_described(administrator: Administrator, topic: str, version: int) -> None:
    administrator.create(new_topic(topic, 2))
    batch = batch_of(b"x" * 1_000)
    for _ in range(3):
        produce(administrator.connection, topic, {1: batch})
    found = log_dir(administrator, [DescribableLogDirTopic(topic, [0, 1, 2])], version)
    assert found.log_dir
    (described,) = found.topics
    assert described.name == topic
    assert [(p.partition_index, p.partition_size, p.offset_lag) for p in described.partitions] == [
        (0, 0, 0),
        (1, 3 * len(batch), 0),
    ]
    if version >= SPACE_SINCE:
        assert found.total_bytes == 1 << 30
        assert 0 < found.usable_bytes < found.total_bytes


def test_null_means_all_topics_and_none_means_none(administrator: Administrator, topic: str) -> None:
    administrator.create(topic)
    assert topic in [found.name for found in log_dir(administrator, None).topics]
    assert log_dir(administrator, []).topics == []
    assert log_dir(administrator, [DescribableLogDirTopic("no-such", [0])]).topics == []


def test_deleted_records_take_no_room(administrator: Administrator, topic: str) -> None:
    administrator.create(topic)
    produce(administrator.connection, topic, {0: batch_of(b"x")})
    administrator.delete_records(topic, 0, -1)
    (described,) = log_dir(administrator, [DescribableLogDirTopic(topic, [0])]).topics
    assert described.partitions[0].partition_size == 0


def test_a_store_without_a_limit_has_unknown_room(start_broker: StartBroker, start_redis: StartRedis) -> None:
    with connect(start_broker(redis=start_redis().url)) as connection:
        found = log_dir(Administrator(connection), None)
        assert (found.total_bytes, found.usable_bytes) == (-1, -1)
