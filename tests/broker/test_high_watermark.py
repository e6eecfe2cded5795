"""The high watermark that clients are told does not go back when another node takes over without replicas."""

from __future__ import annotations

import time
from pathlib import Path
from signal import Signals
from typing import cast

import pytest

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.fetch import FetchResponse, PartitionData
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.special_times import LATEST
from tests.broker.peers import connect, fetch, fetch_request, values_of
from tests.broker_process import BrokerProcess, wait_until
from tests.clients.client import Sent
from tests.clients.confluent_adapter import ConfluentKafka
from tests.conftest import StartBroker
from tests.replicated import replicated

PLACE = ("orders", 0)

client = ConfluentKafka()


def test_the_end_that_was_told_does_not_go_back_when_another_node_takes_over_without_replicas(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    with replicated(tmp_path / "servers") as servers:
        settings = {"redis": servers.url, "replica_timeout_ms": 1_000, "node_lease_ms": 1_000}
        nodes = {node_id: start_broker(node_id=node_id, **settings) for node_id in (1, 2)}
        client.create_topic(nodes[1].address, PLACE[0], 1, {"min.insync.replicas": "2"})
        with Cluster(nodes[1].address) as cluster:
            leader = nodes.pop(cluster.leader(*PLACE))
        (other,) = nodes.values()
        for number in range(10):
            client.produce(leader.address, PLACE[0], [Sent(0, None, b"%d" % number)], {"acks": "all"})
        assert told(leader) == 10
        servers.replicas[0].kill()
        servers.wait_in_step(0)
        leader.kill()
        wait_until(lambda: told(other) is not None, "nobody leads it")
        assert told(other) in (10, ErrorCode.OFFSET_NOT_AVAILABLE)
        servers.attach(servers.replicas[0])
        wait_until(lambda: told(other) == 10, "the end is not known again")


@pytest.mark.parametrize("form", ["log", "stream"])
def test_a_reader_at_the_end_is_not_told_an_earlier_one_by_the_node_that_takes_over(
    start_broker: StartBroker, tmp_path: Path, form: str
) -> None:
    with replicated(tmp_path / "servers") as servers:
        settings = {"redis": servers.url, "node_lease_ms": 1_000}
        nodes = {node_id: start_broker(node_id=node_id, **settings) for node_id in (1, 2)}
        client.create_topic(nodes[1].address, PLACE[0], 1, {"min.insync.replicas": "2", "headrace.format": form})
        with Cluster(nodes[1].address) as cluster:
            leader = nodes.pop(cluster.leader(*PLACE))
        (other,) = nodes.values()
        records = [Sent(0, None, b"%d" % number) for number in range(10)]
        client.produce(leader.address, PLACE[0], records, {"acks": "all"})
        end = told(leader)
        assert end is not None
        leader.kill()
        with connect(other) as connection:
            answers: list[PartitionData] = []

            def is_led() -> bool:
                answers.append(fetch(connection, PLACE[0], {PLACE[1]: end})[PLACE[1]])
                return answers[-1].error_code == ErrorCode.NONE

            wait_until(is_led, "nobody leads it")
        assert (answers[-1].high_watermark, answers[-1].last_stable_offset) == (end, end)


@pytest.mark.parametrize("form", ["log", "stream"])
def test_a_node_that_slept_does_not_tell_the_end_of_before(
    start_broker: StartBroker, tmp_path: Path, form: str
) -> None:
    """Its lease is not taken back yet when the store answers again, and it reads the log first."""
    with replicated(tmp_path / "servers") as servers:
        settings = {"redis": servers.url, "node_lease_ms": 3_000}
        nodes = {node_id: start_broker(node_id=node_id, **settings) for node_id in (1, 2)}
        client.create_topic(nodes[1].address, PLACE[0], 1, {"min.insync.replicas": "2", "headrace.format": form})
        with Cluster(nodes[1].address) as cluster:
            leader = nodes.pop(cluster.leader(*PLACE))
        (other,) = nodes.values()
        client.produce(leader.address, PLACE[0], [Sent(0, None, b"before")], {"acks": "all"})
        before = told(leader)
        with connect(leader) as connection:
            leader.send_signal(Signals.SIGSTOP)
            wait_until(lambda: told(other) is not None, "nobody takes over", 30)
            client.produce(other.address, PLACE[0], [Sent(0, None, b"since")], {"acks": "all"})
            end = told(other)
            assert before is not None
            assert end is not None
            assert before < end
            servers.primary.send_signal(Signals.SIGSTOP)
            leader.send_signal(Signals.SIGCONT)
            for _ in range(40):
                connection.ask(request_for_the_end(), 5)
                time.sleep(0.02)
            servers.primary.send_signal(Signals.SIGCONT)
            answers = [cast("ListOffsetsResponse", connection.receive()).topics[0].partitions[0] for _ in range(40)]
    assert {answer.offset for answer in answers if answer.error_code == ErrorCode.NONE} <= {end}


@pytest.mark.parametrize("form", ["log", "stream"])
def test_a_reader_past_the_end_that_a_new_leader_knows_of_waits_for_replicas(
    start_broker: StartBroker, tmp_path: Path, form: str
) -> None:
    """It was stored before the last records were confirmed, and no replica is there to confirm them again."""
    with replicated(tmp_path / "servers") as servers:
        settings: dict[str, object] = {"redis": servers.url, "node_lease_ms": 1_000}
        broker = start_broker(node_id=1, **settings)
        client.create_topic(broker.address, PLACE[0], 1, {"min.insync.replicas": "2", "headrace.format": form})
        first = client.produce(broker.address, PLACE[0], [Sent(0, None, b"first")], {"acks": "all"})[0]
        client.produce(broker.address, PLACE[0], [Sent(0, None, b"last")], {"acks": "all"})
        end = told(broker)
        assert end is not None
        broker.kill()
        (meta,) = servers.primary.ask("KEYS", "*:meta")
        servers.primary.ask("HSET", meta, "copied", first + 1)
        servers.replicas[0].kill()
        servers.wait_in_step(0)
        broker.start()
        with connect(broker) as connection:
            for position in (first + 1, end):
                answer = fetch(connection, PLACE[0], {PLACE[1]: position}, max_wait_ms=100, min_bytes=1)[PLACE[1]]
                assert (answer.error_code, answer.high_watermark) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
            older = connection.send_for(fetch_request(PLACE[0], {PLACE[1]: end}), FetchResponse, 10)
            assert older.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert told(broker) == ErrorCode.OFFSET_NOT_AVAILABLE
            readable: list[PartitionData] = []

            def is_read() -> bool:
                readable.append(fetch(connection, PLACE[0], {PLACE[1]: first}, max_wait_ms=100, min_bytes=1)[PLACE[1]])
                return readable[-1].error_code == ErrorCode.NONE

            wait_until(is_read, "what was readable is not")
            assert (values_of(readable[-1]), readable[-1].high_watermark) == ([b"first"], first + 1)
            servers.attach(servers.replicas[0])
            wait_until(lambda: told(broker) == end, "the end is not known again")
            assert fetch(connection, PLACE[0], {PLACE[1]: end})[PLACE[1]].high_watermark == end


@pytest.mark.parametrize("form", ["log", "stream"])
def test_the_end_that_was_told_stays_while_replicas_are_away(
    start_broker: StartBroker, tmp_path: Path, form: str
) -> None:
    with replicated(tmp_path / "servers") as servers:
        broker = start_broker(redis=servers.url)
        client.create_topic(broker.address, PLACE[0], 1, {"min.insync.replicas": "2", "headrace.format": form})
        client.produce(broker.address, PLACE[0], [Sent(0, None, b"copied")], {"acks": "all"})
        end = told(broker)
        assert end is not None
        servers.replicas[0].kill()
        servers.wait_in_step(0)
        client.produce(broker.address, PLACE[0], [Sent(0, None, b"not copied")], {"acks": "1"})
        with connect(broker) as connection:
            answer = fetch(connection, PLACE[0], {PLACE[1]: end}, max_wait_ms=100, min_bytes=1)[PLACE[1]]
            assert (answer.error_code, answer.high_watermark, values_of(answer)) == (ErrorCode.NONE, end, [])
        assert told(broker) == end


@pytest.mark.parametrize("form", ["log", "stream"])
def test_the_last_end_that_was_told_is_stored_though_nothing_follows(
    start_broker: StartBroker, tmp_path: Path, form: str
) -> None:
    with replicated(tmp_path / "servers") as servers:
        broker = start_broker(redis=servers.url)
        client.create_topic(broker.address, PLACE[0], 1, {"min.insync.replicas": "2", "headrace.format": form})
        for number in range(3):
            client.produce(broker.address, PLACE[0], [Sent(0, None, b"%d" % number)], {"acks": "all"})
        end = told(broker)
        (meta,) = servers.primary.ask("KEYS", "*:meta")
        wait_until(lambda: servers.primary.ask("HGET", meta, "copied") == b"%d" % (end or 0), "it is not stored", 30)
        servers.replicas[0].kill()
        servers.wait_in_step(0)
        broker.kill()
        broker.start()
        assert told(broker) == end


def request_for_the_end() -> ListOffsetsRequest:
    return ListOffsetsRequest(topics=[ListOffsetsTopic(PLACE[0], [ListOffsetsPartition(PLACE[1], timestamp=LATEST)])])


def told(node: BrokerProcess) -> int | None:
    """The end, or the error; None while the node does not lead the partition."""
    try:
        with Cluster(node.address, timeout_s=10) as cluster:
            return Admin(cluster).list_offsets({PLACE: LATEST})[PLACE].offset
    except KafkaError as error:
        return error.code if error.code == ErrorCode.OFFSET_NOT_AVAILABLE else None
    except (BrokerUnreachable, OSError):
        return None
