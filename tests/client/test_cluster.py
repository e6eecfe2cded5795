"""A cluster: the right broker is found, what has changed is looked up again, and deadlines hold."""

from __future__ import annotations

import socket
import time

import pytest

from headrace.client import BrokerUnreachable, Cluster
from headrace.client.cluster import by_topic
from headrace.client.errors import RetriableError, kafka_error
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.api_versions import ApiVersionsRequest
from tests.broker_process import BrokerProcess


def test_brokers_and_leaders_come_from_the_metadata(cluster: Cluster) -> None:
    partitions = [("leaders", p.partition_index) for p in cluster.topic("leaders", create=True).partitions]
    assert sorted(cluster.nodes) == [1, 2, 3]
    assert len(partitions) == 4
    found = cluster.by_leader(partitions)
    assert sorted(p for led in found.values() for p in led) == partitions
    for node_id in found:
        assert cluster.node(node_id).address == f"{cluster.nodes[node_id].host}:{cluster.nodes[node_id].port}"


def test_connections_are_kept_and_broken_ones_opened_again(cluster: Cluster) -> None:
    cluster.refresh([])
    first = cluster.node(2)
    assert cluster.node(2) is first
    first.close()
    again = cluster.node(2)
    assert again is not first
    assert again.is_idle


def test_a_connection_left_with_an_answer_to_come_is_not_used_again(cluster: Cluster) -> None:
    cluster.refresh([])
    first = cluster.node(2)
    first.ask(ApiVersionsRequest(), 0)
    assert cluster.node(2) is not first
    assert not first.is_open


def test_groups_have_a_coordinator(cluster: Cluster) -> None:
    connection = cluster.coordinator("some group")
    assert connection.address in {f"{node.host}:{node.port}" for node in cluster.nodes.values()}


def test_a_partition_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    cluster.topic("leaders", create=True)
    with pytest.raises(KafkaError, match="Topic 'leaders' has no partition 99") as raised:
        cluster.leader("leaders", 99)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not isinstance(raised.value, RetriableError)


def test_an_unknown_topic_is_worth_waiting_for_only_while_it_is_fresh(cluster: Cluster) -> None:
    cluster.expect_topics(["new"])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert isinstance(cluster.topic_error("new", unknown), RetriableError)
    assert not isinstance(cluster.topic_error("old", unknown), RetriableError)
    cluster.topic("new", create=True)
    assert not isinstance(cluster.topic_error("new", unknown), RetriableError)


def test_retriable_errors_are_tried_again_with_new_metadata(cluster: Cluster) -> None:
    cluster.topic("retried", create=True)
    seen: list[bool] = []

    def attempt() -> str:
        seen.append("retried" in cluster._topics)
        cluster.topic("retried")
        if len(seen) < 4:
            raise kafka_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return "done"

    assert cluster.retrying(attempt) == "done"
    assert seen == [True, False, False, False]


def test_other_errors_are_raised_at_once(cluster: Cluster) -> None:
    tries = 0

    def attempt() -> None:
        nonlocal tries
        tries += 1
        raise kafka_error(ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name")

    with pytest.raises(KafkaError, match="bad name"):
        cluster.retrying(attempt)
    assert tries == 1


def test_the_deadline_ends_the_tries_with_the_last_error(librdkafka_cluster: str) -> None:
    with Cluster(librdkafka_cluster, timeout_s=0.3) as cluster:
        cluster.refresh([])
        start = time.monotonic()
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            cluster.retrying(lambda: _raise(kafka_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
        assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    "error",
    [BrokerUnreachable("gone", request_sent=True), kafka_error(ErrorCode.REQUEST_TIMED_OUT)],
    ids=["connection lost", "timed out"],
)
def test_what_may_have_been_done_is_not_done_again_unless_that_is_harmless(cluster: Cluster, error: Exception) -> None:
    cluster.refresh([])
    outcomes: list[Exception | str] = [error, "again"]

    def attempt() -> str:
        outcome = outcomes.pop(0)
        return _raise(outcome) if isinstance(outcome, Exception) else outcome

    with pytest.raises(type(error)):
        cluster.retrying(attempt, repeatable=False)
    assert outcomes == ["again"]
    outcomes[:] = [error, "again"]
    assert cluster.retrying(attempt) == "again"


def test_what_was_surely_not_done_is_tried_again(cluster: Cluster) -> None:
    cluster.refresh([])
    outcomes: list[Exception | str] = [BrokerUnreachable("refused"), "again"]

    def attempt() -> str:
        outcome = outcomes.pop(0)
        return _raise(outcome) if isinstance(outcome, Exception) else outcome

    assert cluster.retrying(attempt, repeatable=False) == "again"


def test_a_cluster_that_is_not_there_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with Cluster(address, timeout_s=60) as cluster:
        with pytest.raises(BrokerUnreachable, match=f"No broker answers at {address}"):
            cluster.retrying(lambda: cluster.refresh([]))


def test_one_broker_of_several_is_enough_to_begin_with(librdkafka_cluster: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"127.0.0.1:{listener.getsockname()[1]}"
    with Cluster(f"{nobody}, {librdkafka_cluster}") as cluster:
        cluster.refresh([])
        assert len(cluster.nodes) == 3


def test_a_code_without_a_name_is_still_an_error() -> None:
    error = kafka_error(4711, "from the future")
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(error) == "error 4711: from the future"


def test_partitions_are_listed_by_topic() -> None:
    assert by_topic([("a", 1), ("b", 0), ("a", 0)]) == {"a": [1, 0], "b": [0]}


def _raise(error: Exception) -> str:
    raise error


def test_the_impatient_ask_again_unless_something_is_away(broker: BrokerProcess) -> None:
    tried: list[ErrorCode] = []

    def refused(code: ErrorCode, times: int = 1_000_000) -> int:
        tried.append(code)
        if len(tried) <= times:
            raise RetriableError(code)
        return len(tried)

    with Cluster(broker.address, 600.0) as cluster:
        cluster.refresh([])
        with cluster.impatient(0.0):
            with pytest.raises(RetriableError):
                cluster.retrying(lambda: refused(ErrorCode.KAFKA_STORAGE_ERROR))
            assert len(tried) == 1
            tried.clear()
            assert cluster.retrying(lambda: refused(ErrorCode.LEADER_NOT_AVAILABLE, 3)) == 4
