"""Transactions as real clients use them: what a reader of committed records sees, and what it does not."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker_process import BrokerProcess
from tests.clients.client import Client

_WAIT_S = 30.0


def _make_topic(broker: BrokerProcess, name: str, partitions: int = 3, **config: str) -> None:
    administrator = AdminClient({"bootstrap.servers": broker.address})
    administrator.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(_WAIT_S)


def _producer(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(_WAIT_S)
    return producer


def _read(broker: BrokerProcess, topic: str, isolation: str, partitions: int = 3) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[bytes] = []
    at_end: set[int] = set()
    while len(at_end) < partitions:
        message: Any = consumer.poll(_WAIT_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            at_end.add(message.partition())
        else:
            found.append(message.value())
    consumer.close()
    return sorted(found)


def _send(producer: Producer, topic: str, values: list[bytes], partitions: int = 3) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)


def test_committed_records_are_read_and_aborted_ones_are_not(broker: BrokerProcess, topic: str) -> None:
    _make_topic(broker, topic)
    producer = _producer(broker, f"tx-{topic}")
    for round_number in range(4):
        producer.begin_transaction()
        _send(producer, topic, [b"%d-%d" % (round_number, n) for n in range(6)])
        producer.flush(_WAIT_S)  # an abort drops what was not sent
        if round_number % 2:
            producer.abort_transaction(_WAIT_S)
        else:
            producer.commit_transaction(_WAIT_S)
    committed = sorted(b"%d-%d" % (r, n) for r in (0, 2) for n in range(6))
    assert _read(broker, topic, "read_committed") == committed
    assert len(_read(broker, topic, "read_uncommitted")) == 24


def test_an_open_transaction_is_not_read_and_holds_back_what_follows(broker: BrokerProcess, topic: str) -> None:
    _make_topic(broker, topic, 1)
    producer = _producer(broker, f"tx-{topic}")
    producer.begin_transaction()
    _send(producer, topic, [b"in the transaction"], 1)
    producer.flush(_WAIT_S)
    plain = Producer({"bootstrap.servers": broker.address})
    _send(plain, topic, [b"behind"], 1)
    plain.flush(_WAIT_S)
    assert _read(broker, topic, "read_committed", 1) == []
    assert _read(broker, topic, "read_uncommitted", 1) == [b"behind", b"in the transaction"]
    producer.commit_transaction(_WAIT_S)
    assert _read(broker, topic, "read_committed", 1) == [b"behind", b"in the transaction"]


def test_a_second_producer_fences_the_first_and_aborts_what_it_left_open(broker: BrokerProcess, topic: str) -> None:
    _make_topic(broker, topic)
    first = _producer(broker, f"tx-{topic}")
    first.begin_transaction()
    _send(first, topic, [b"left open"])
    first.flush(_WAIT_S)
    second = _producer(broker, f"tx-{topic}")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(_WAIT_S)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    _send(second, topic, [b"of the second"])
    second.commit_transaction(_WAIT_S)
    assert _read(broker, topic, "read_committed") == [b"of the second"]


def _committed(broker: BrokerProcess, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    found: int = consumer.committed([TopicPartition(topic, 0)], _WAIT_S)[0].offset
    consumer.close()
    return found


def test_offsets_are_committed_with_the_transaction_and_not_without(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    _make_topic(broker, topic, 1)
    producer = _producer(broker, f"tx-{topic}")
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for offset, commit in ((5, True), (9, False), (7, True)):
        producer.begin_transaction()
        _send(producer, topic, [b"x"], 1)
        place = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), _WAIT_S)
        if commit:
            producer.commit_transaction(_WAIT_S)
        else:
            producer.abort_transaction(_WAIT_S)
        assert _committed(broker, group, topic) == (offset if commit else 5)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert _committed(broker, group, topic) == 1
    consumer.close()


async def test_aiokafka_commits_and_aborts(broker: BrokerProcess, topic: str) -> None:
    _make_topic(broker, topic)
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=f"tx-{topic}")
    await producer.start()
    try:
        async with producer.transaction():
            for number in range(6):
                await producer.send_and_wait(topic, b"kept %d" % number, partition=number % 3)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"dropped", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"last", partition=0)
            await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 3}, f"g-{topic}")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.address,
        group_id=f"g-{topic}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    places = [AioTopicPartition(topic, number) for number in range(3)]
    await consumer.start()
    try:
        consumer.assign(places)
        assert await consumer.committed(places[0]) == 3
        await consumer.seek_to_beginning(*places)
        found = [(await consumer.getone()).value for _ in range(7)]
    finally:
        await consumer.stop()
    assert sorted(found) == sorted([*(b"kept %d" % number for number in range(6)), b"last"])


def test_every_client_gets_its_transactional_id(broker: BrokerProcess, client: Client) -> None:
    client.begin_transactions(broker.address)
