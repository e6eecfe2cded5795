"""Records whose time is missing, as librdkafka sends them: they stay as long as any others, whatever restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from headrace.client.connection import BrokerConnection
from tests.broker.peers import batch_of, connect, create_topic, produce
from tests.broker.test_list_offsets import EARLIEST, ask
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker

COUNT = 300
LONG_AGO_MS = 1_000_000_000_000
FORMATS: dict[str, dict[str, str]] = {
    "log": {},
    "stream-create-time": {"headrace.format": "stream", "message.timestamp.type": "CreateTime"},
    "stream": {"headrace.format": "stream"},
}


@pytest.fixture
def checking(start_broker: StartBroker) -> BrokerProcess:
    """A broker that looks for old records all the time."""
    return start_broker(retention_check_interval_ms=50)


@pytest.fixture
def connection(checking: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(checking) as found:
        yield found


def see_a_whole_check(connection: BrokerConnection) -> None:
    """Returns after all topics were looked at for old records: what is old was removed twice since."""
    for _ in range(2):
        answer = produce(connection, "witness", {0: batch_of(b"old", timestamp=LONG_AGO_MS)})[0]
        assert answer.error_code == 0
        end = answer.base_offset + 1
        wait_until(lambda end=end: ask(connection, "witness", EARLIEST).offset == end, "old records stay")  # type: ignore[misc]


def consume(broker: BrokerProcess, topic: str) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "all", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []
        while len(found) < COUNT:
            found += consumer.consume(COUNT - len(found), 10)
            assert found, "nothing came within ten seconds"
        return found
    finally:
        consumer.close()


def test_records_without_a_time_outlive_checks_and_restarts(
    checking: BrokerProcess, connection: BrokerConnection
) -> None:
    """Of every format, plain and compressed, all through one restart."""
    topics = {f"{form}-{codec}": (configs, codec) for form, configs in FORMATS.items() for codec in ("none", "gzip")}
    create_topic(connection, "witness")
    for topic, (configs, codec) in topics.items():
        create_topic(connection, topic, configs=configs)
        producer = Producer({"bootstrap.servers": checking.address, "compression.type": codec})
        for number in range(COUNT):
            producer.produce(topic, b"%d" % number, partition=0, timestamp=-1)
        assert producer.flush(30) == 0
        del producer
    see_a_whole_check(connection)
    checking.kill()
    checking.start()
    with connect(checking) as again:
        see_a_whole_check(again)
    for topic, (configs, _) in topics.items():
        found = consume(checking, topic)
        assert [message.value() for message in found] == [b"%d" % number for number in range(COUNT)], topic
        if configs.get("headrace.format") != "stream" or "message.timestamp.type" in configs:
            assert {message.timestamp()[1] for message in found} == {-1}, topic
