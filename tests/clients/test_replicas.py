"""acks=all on a topic that asks for copies (min.insync.replicas), seen by confluent-kafka with real replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker_process import BrokerProcess, wait_until
from tests.clients.client import DeliveryFailed, Sent
from tests.clients.confluent_adapter import ConfluentKafka
from tests.conftest import StartBroker
from tests.replicated import ReplicatedServers, replicated

NOT_ENOUGH, NOT_ENOUGH_AFTER_APPEND = 19, 20
ONE_TRY = {"acks": "all", "retries": 0}
FORMATS = ["log", "stream"]

client = ConfluentKafka()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers") as started:
        yield started


@pytest.fixture
def broker(start_broker: StartBroker, servers: ReplicatedServers) -> BrokerProcess:
    return start_broker(redis=servers.url, replica_timeout_ms=1_500)


def make(broker: BrokerProcess, topic: str, form: str, copies: int = 2) -> None:
    configs = {"min.insync.replicas": str(copies), "headrace.format": form}
    client.create_topic(broker.address, topic, 1, configs)


def send(broker: BrokerProcess, topic: str, *values: bytes, **settings: Any) -> list[int]:
    return client.produce(broker.address, topic, [Sent(0, None, value) for value in values], ONE_TRY | settings)


def end_of(broker: BrokerProcess, topic: str) -> int:
    """The high watermark that a consumer is told."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "ends"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    finally:
        consumer.close()


TIMEOUT_S = 30.0


def read(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """The first records of a topic; fewer, if there are not as many in time."""
    return _read(broker, topic, count, stops_at_end=False)


def read_to_end(broker: BrokerProcess, topic: str) -> list[bytes]:
    """All records up to where readers are told that a topic ends."""
    return _read(broker, topic, 1 << 30, stops_at_end=True)


def _read(broker: BrokerProcess, topic: str, count: int, *, stops_at_end: bool) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.address, "group.id": "readers", "enable.partition.eof": stops_at_end}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            error = message.error() if message is not None else None
            if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                break
            if message is not None and error is None:
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("form", FORMATS)
def test_a_record_is_acknowledged_once_the_replica_has_it(
    broker: BrokerProcess, servers: ReplicatedServers, topic: str, form: str
) -> None:
    make(broker, topic, form)
    first, second = send(broker, topic, b"a", b"b")
    assert second == first + 1
    assert read(broker, topic, 2) == [b"a", b"b"]
    key = next(key for key in servers.replicas[0].ask("KEYS", f"*{topic}*") if key.endswith((b":log", b":stream")))
    assert servers.replicas[0].ask("XLEN", key) >= 1
    assert end_of(broker, topic) == second + 1


@pytest.mark.parametrize("form", FORMATS)
def test_a_replica_that_hangs_gives_error_20_and_readers_wait_until_it_goes_on(
    broker: BrokerProcess, servers: ReplicatedServers, topic: str, form: str
) -> None:
    make(broker, topic, form)
    (first,) = send(broker, topic, b"before")
    servers.freeze(servers.replicas[0])
    with pytest.raises(DeliveryFailed) as refusal:
        send(broker, topic, b"behind")
    assert refusal.value.code == NOT_ENOUGH_AFTER_APPEND
    assert end_of(broker, topic) == first + 1
    assert send(broker, topic, b"not waited for", acks=1) != [-1]
    assert read_to_end(broker, topic) == [b"before"]
    servers.thaw(servers.replicas[0])
    assert read(broker, topic, 3) == [b"before", b"behind", b"not waited for"]
    assert send(broker, topic, b"after") == [end_of(broker, topic) - 1]


@pytest.mark.parametrize("form", FORMATS)
def test_a_replica_that_is_gone_gives_error_19_and_nothing_is_written(
    broker: BrokerProcess, servers: ReplicatedServers, topic: str, form: str
) -> None:
    make(broker, topic, form)
    send(broker, topic, b"before")
    servers.replicas[0].kill()
    servers.wait_in_step(0)
    with pytest.raises(DeliveryFailed) as refusal:
        send(broker, topic, b"the one that finds out")
    assert refusal.value.code in (NOT_ENOUGH, NOT_ENOUGH_AFTER_APPEND)
    with pytest.raises(DeliveryFailed) as refusal:
        send(broker, topic, b"refused, too")
    assert refusal.value.code == NOT_ENOUGH
    servers.attach(servers.replicas[0])
    send(broker, topic, b"after")
    assert b"refused, too" not in read_to_end(broker, topic)


def test_an_idempotent_producer_sends_again_until_the_replica_is_back(
    broker: BrokerProcess, servers: ReplicatedServers, topic: str
) -> None:
    """What error 20 was said of is in the log: sent again it is found there, and waited for again."""
    make(broker, topic, "log")
    servers.freeze(servers.replicas[0])
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    outcomes: list[Any] = []
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(4.5) == 10  # three times what a replica may take: it was refused, and sent again
    servers.thaw(servers.replicas[0])
    assert producer.flush(30) == 0
    assert outcomes == [None] * 10
    assert read_to_end(broker, topic) == [b"%d" % number for number in range(10)]


def test_commits_wait_for_replicas_where_the_broker_asks_for_them(
    start_broker: StartBroker, servers: ReplicatedServers, topic: str, group: str
) -> None:
    broker = start_broker(redis=servers.url, replica_timeout_ms=500, min_insync_replicas=2)
    assert send(broker, topic, b"a", b"b") == [0, 1]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        servers.freeze(servers.replicas[0])
        with pytest.raises(confluent_kafka.KafkaException) as refusal:
            consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        assert refusal.value.args[0].code() == confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE
        servers.thaw(servers.replicas[0])
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        assert committed.offset == 2
    finally:
        servers.thaw(servers.replicas[0])
        consumer.close()


def test_a_deleted_topic_is_told_as_such_only_where_replicas_know_it(
    start_broker: StartBroker, servers: ReplicatedServers, topic: str
) -> None:
    """A replica that takes over would have it again; what it leaves behind goes with the next topic."""
    broker = start_broker(redis=servers.url, replica_timeout_ms=1_500, min_insync_replicas=2)
    other = f"{topic}-other"
    make(broker, topic, "log")
    make(broker, other, "log")
    admin = AdminClient({"bootstrap.servers": broker.address})
    try:
        servers.freeze(servers.replicas[0])
        with pytest.raises(confluent_kafka.KafkaException) as refusal:
            admin.delete_topics([topic])[topic].result(30)
        assert refusal.value.args[0].code() == NOT_ENOUGH_AFTER_APPEND
        assert servers.primary.ask("KEYS", f"*{topic}:*")
    finally:
        servers.thaw(servers.replicas[0])
    servers.wait_in_step(1)
    admin.delete_topics([other])[other].result(30)
    wait_until(lambda: not servers.primary.ask("KEYS", f"*{topic}*:log"), "keys of deleted topics stay")


def test_a_transaction_is_readable_once_the_replica_has_its_marker(
    broker: BrokerProcess, servers: ReplicatedServers, topic: str
) -> None:
    make(broker, topic, "log")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    assert producer.flush(30) == 0
    producer.commit_transaction(30)
    assert read(broker, topic, 1) == [b"a"]
    assert end_of(broker, topic) == 2
    producer.begin_transaction()
    producer.produce(topic, b"b", partition=0)
    assert producer.flush(30) == 0
    servers.freeze(servers.replicas[0])
    producer.commit_transaction(30)  # decided; its marker is not on the replica
    assert read_to_end(broker, topic) == [b"a"]
    servers.thaw(servers.replicas[0])
    assert read(broker, topic, 2) == [b"a", b"b"]
