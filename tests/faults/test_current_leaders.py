"""A request that came to the wrong node is told who leads, and where the client reaches that node (KIP-951)."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from signal import Signals

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.broker.peers import batch_of, connect, create_topic, metadata, produce
from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.test_two_brokers import LEASE_MS, leaders_of, nodes_of

PARTITIONS = 8
TIMEOUT_S = 20
FORMATS = ["log", "stream"]
NOBODY = (-1, -1)
Listeners = dict[str, int]


def listening(node: int) -> tuple[Listeners, dict[str, object]]:
    """Two listeners, of which one is advertised under another name."""
    ports = {"inside": free_port(), "outside": free_port()}
    listen = [
        f"inside=PLAINTEXT://127.0.0.1:{ports['inside']}",
        f"outside=PLAINTEXT://127.0.0.1:{ports['outside']},advertised=node-{node}.example.com:{ports['outside']}",
    ]
    return ports, {"listen": listen, "node_id": node, "node_lease_ms": LEASE_MS, "rack": f"rack-{node}"}


def send_produce(connection: BrokerConnection, topic: str, uuid: bytes, number: int, version: int) -> ProduceResponse:
    data = TopicProduceData(uuid, topic, [PartitionProduceData(number, batch_of(b"x"))])
    return connection.send_for(ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[data]), ProduceResponse, version)


def send_fetch(
    connection: BrokerConnection, topic: str, uuid: bytes, number: int, version: int, epoch: int = -1
) -> FetchResponse:
    wanted = FetchTopic(uuid, topic, [FetchPartition(number, current_leader_epoch=epoch, partition_max_bytes=1 << 20)])
    return connection.send_for(FetchRequest(topics=[wanted], session_epoch=-1), FetchResponse, version)


def places(response: ProduceResponse | FetchResponse) -> list[tuple[int, str, int, str | None]]:
    return [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]


def check_produce(response: ProduceResponse, leader: tuple[int, int]) -> None:
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == leader


def check_fetch(response: FetchResponse, leader: tuple[int, int], error: int) -> None:
    (answer,) = response.responses[0].partitions
    assert answer.error_code == error
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == leader


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("straight", [True, False])
def test_the_wrong_node_names_the_leader_and_its_address_on_the_callers_listener(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, format: str, straight: bool
) -> None:
    url = start_redis("everysec").url
    ports: dict[int, Listeners] = {}
    brokers: dict[int, BrokerProcess] = {}
    for node in (1, 2):
        ports[node], settings = listening(node)
        brokers[node] = start_broker(redis=url, straight_path=straight, **settings)
    wait_until(lambda: all(nodes_of(one) == {1, 2} for one in brokers.values()), "the nodes do not know each other")
    with connect(brokers[1]) as connection:
        create_topic(connection, topic, PARTITIONS, {"headrace.format": format})
        uuid = metadata(connection, topic).topics[0].topic_id
    number = next(number for number, leader in leaders_of(brokers[1], topic).items() if leader == 2)
    at = {
        "inside": [(2, "127.0.0.1", ports[2]["inside"], "rack-2")],
        "outside": [(2, "node-2.example.com", ports[2]["outside"], "rack-2")],
    }
    for listener, expected in at.items():
        with BrokerConnection("127.0.0.1", ports[1][listener], TIMEOUT_S) as connection:
            for version in (9, 10, 12, 13):
                response = send_produce(connection, topic, uuid, number, version)
                check_produce(response, (2, 0) if version >= 10 else NOBODY)
                assert places(response) == (expected if version >= 10 else [])
            for version in (12, 15, 16, 18):
                answer = send_fetch(connection, topic, uuid, number, version)
                check_fetch(answer, (2, 0) if version >= 16 else NOBODY, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                assert places(answer) == (expected if version >= 16 else [])


@pytest.mark.parametrize("format", FORMATS)
def test_a_consumer_with_an_old_epoch_is_told_the_new_one(start_broker: StartBroker, topic: str, format: str) -> None:
    broker = start_broker()
    with connect(broker) as connection:
        create_topic(connection, topic, 1, {"headrace.format": format})
        assert produce(connection, topic, {0: batch_of(b"x")})[0].error_code == 0
    broker.kill()
    os.kill(broker.valkey_pid, Signals.SIGKILL)
    broker.start()
    with connect(broker) as connection:
        uuid = metadata(connection, topic).topics[0].topic_id
        fenced = send_fetch(connection, topic, uuid, 0, 16, epoch=0)
        check_fetch(fenced, (0, 1), ErrorCode.FENCED_LEADER_EPOCH)
        assert places(fenced) == [(0, broker.host, broker.port, None)]
        check_fetch(send_fetch(connection, topic, uuid, 0, 15, epoch=0), NOBODY, ErrorCode.FENCED_LEADER_EPOCH)
        ahead = send_fetch(connection, topic, uuid, 0, 16, epoch=9)
        check_fetch(ahead, NOBODY, ErrorCode.UNKNOWN_LEADER_EPOCH)
        assert places(ahead) == []


class Told(logging.Handler):
    """The leaders that a librdkafka client learned: told in a response, or from metadata that it asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[int] = set()
        self.asked: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if "METADATAUPDATE" in line and "updated with leader " in line:
            self.told.add(int(line.split("updated with leader ")[1].split()[0]))
        elif line.split("Topic ")[-1].split()[2:3] == ["Leader"]:
            self.asked.add(int(line.split("Leader ")[1].split()[0]))


class Clients:
    """A producer and a consumer of all partitions that never refresh their metadata by the clock."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        common: Mapping[str, str | int] = {
            "bootstrap.servers": broker.address,
            "debug": "metadata",
            "topic.metadata.refresh.interval.ms": -1,
        }
        self.heard = [Told(), Told()]
        self.producer = Producer({**common, "linger.ms": 0}, logger=logger_of(self.heard[0]))
        reading = {**common, "group.id": "unused", "fetch.wait.max.ms": 100}
        self.consumer = Consumer(reading, logger=logger_of(self.heard[1]))
        self.consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.topic = topic
        self.delivered: list[object] = []
        self.sent = 0

    def know(self, node: int) -> bool:
        """Whether both know that a node leads something, after one more record to each partition."""
        for number in range(PARTITIONS):
            self.producer.produce(
                self.topic, b"x", partition=number, on_delivery=lambda error, _: self.delivered.append(error)
            )
            self.sent += 1
        self.producer.poll(0.05)
        self.consumer.poll(0.05)
        return all(node in one.told | one.asked for one in self.heard)

    def were_told(self, node: int) -> bool:
        return all(node in one.told for one in self.heard)

    def finish(self) -> None:
        try:
            assert self.producer.flush(TIMEOUT_S) == 0
            assert self.delivered == [None] * self.sent
        finally:
            self.consumer.close()


@pytest.mark.parametrize("format", FORMATS)
def test_confluent_clients_go_to_a_new_leader_by_what_they_are_told(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, format: str
) -> None:
    """A node joins that the clients do not know: the response to their next request says where it is.

    A client may ask for metadata of its own accord just as the node joins and learn of it that way; then another node
    joins, and other clients have to be told of that one.
    """
    url = start_redis("everysec").url
    one = start_broker(redis=url, node_id=1, node_lease_ms=LEASE_MS)
    with connect(one) as connection:
        create_topic(connection, topic, PARTITIONS, {"headrace.format": format})
    told = False
    for node in (2, 3, 4):
        clients = Clients(one, topic)
        try:
            wait_until(partial(clients.know, 1), "the clients do not know the first node")
            joined = start_broker(redis=url, node_id=node, node_lease_ms=LEASE_MS)
            wait_until(partial(is_known_to, joined, node), "the node does not join")
            wait_until(partial(clients.know, node), "no client goes to the new leader")
            told = clients.were_told(node)
        finally:
            clients.finish()
        if told:
            break
    assert told, "each client had to ask for what it should have been told"


def is_known_to(broker: BrokerProcess, node: int) -> bool:
    return node in nodes_of(broker)


def logger_of(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(handler)
    return logger
