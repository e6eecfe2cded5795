"""A replica that is behind takes over within a transaction: what was acknowledged is committed whole, or with an error.

The replica knows neither the record nor that its transaction was begun. The broker lives on and restores the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import Signals

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headrace.store.embedded.ports import HOST
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.peers import connect, create_topic
from tests.broker_process import BrokerProcess, free_port, wait_until
from tests.conftest import StartBroker
from tests.relays import Network, Relay, network
from tests.replicated import ReplicatedServers, replicated

pytestmark = pytest.mark.faults
TOPIC, PARTITIONS, WAIT_S = "ledger", range(2), 20.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers", durability="always") as started:
        yield started


@pytest.fixture
def relays() -> Iterator[Network]:
    with network() as made:
        yield made


def _take_over(servers: ReplicatedServers, relay: Relay) -> None:
    replica = servers.replicas[0]
    relay.refuse()
    servers.primary.kill()
    replica.send_signal(Signals.SIGKILL)  # restarted, or it would still read what its socket holds
    replica.stop()
    replica.start()
    replica.ask("REPLICAOF", "NO", "ONE")
    relay.target = (HOST, replica.port)
    relay.heal()


def _send(producer: Producer, partition: int, value: bytes) -> KafkaError | None:
    """What the producer is told of a record."""
    told: list[KafkaError | None] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    producer.produce(TOPIC, value, partition=partition, on_delivery=answered)
    producer.flush(WAIT_S)
    return told[0]


def _committed(broker: BrokerProcess) -> set[bytes]:
    """What is read up to the ends of both partitions."""
    settings = {"bootstrap.servers": broker.address, "group.id": "check", "enable.partition.eof": True}
    # The broker may leave a margin behind what the store lost: the log then starts behind it.
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    found: set[bytes] = set()
    ended: set[int] = set()

    def is_read() -> bool:
        for message in consumer.consume(100, 0.2):
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                found.add(message.value() or b"")
        return len(ended) == len(PARTITIONS)

    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in PARTITIONS])
        wait_until(is_read, "the ends are not reached")
        return found
    finally:
        consumer.close()


def _is_stable(broker: BrokerProcess) -> bool:
    """Whether nothing is open in either partition."""
    with connect(broker) as connection:
        ends = []
        for isolation in (0, 1):
            wanted = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in PARTITIONS]
            request = ListOffsetsRequest(isolation_level=isolation, topics=[ListOffsetsTopic(TOPIC, wanted)])
            answer = connection.send_for(request, ListOffsetsResponse, 7)
            ends.append({found.partition_index: found.offset for found in answer.topics[0].partitions})
        return ends[0] == ends[1]


def test_a_record_that_was_acknowledged_is_not_left_out_of_a_commit(
    servers: ReplicatedServers, relays: Network, start_broker: StartBroker
) -> None:
    relay = relays.relay((HOST, free_port()), (HOST, servers.primary.port))
    broker = start_broker(redis=f"redis://{HOST}:{relay.at[1]}/0", store_replicas=0)
    with connect(broker) as connection:
        create_topic(connection, TOPIC, 2, {})
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "mover"})
    producer.init_transactions(WAIT_S)
    servers.wait_in_step(1)
    servers.freeze(servers.replicas[0])
    producer.begin_transaction()
    assert _send(producer, 0, b"first") is None
    _take_over(servers, relay)
    _send(producer, 1, b"second")
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    wait_until(lambda: _is_stable(broker), "the last stable offset stands still")
    assert _committed(broker) == set()
    again = Producer({"bootstrap.servers": broker.address, "transactional.id": "mover"})
    again.init_transactions(WAIT_S)
    again.begin_transaction()
    assert _send(again, 1, b"third") is None
    again.commit_transaction(WAIT_S)
    wait_until(lambda: _committed(broker) == {b"third"}, "a commit is not seen")  # its markers follow the answer
