"""Broker and store die together: the log goes on behind a gap, and whoever reads to the end still gets there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.clients.adapters import CLIENTS
from tests.clients.client import Sent
from tests.conftest import StartBroker
from tests.stores import crash_store

TIMEOUT_S = 30.0
Reader = Callable[[str, str], list[bytes]]
"""Address and topic -> the values of partition 0, read until the client says that it is at the end."""


def with_librdkafka(address: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
    raise AssertionError("it never heard of the end")


def with_kafka_python(address: str, topic: str) -> list[bytes]:
    place: Any = kafka.TopicPartition(topic, 0)
    consumer: Any = kafka.KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    consumer.assign([place])
    consumer.seek(place, 0)
    end, found, deadline = consumer.end_offsets([place])[place], [], time.monotonic() + TIMEOUT_S
    while consumer.position(place) < end:
        assert time.monotonic() < deadline, "it never got to the end"
        found += [record.value for rows in consumer.poll(500).values() for record in rows]
    consumer.close()
    return found


def with_aiokafka(address: str, topic: str) -> list[bytes]:
    async def read() -> list[bytes]:
        place: Any = aiokafka.TopicPartition(topic, 0)
        consumer: Any = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, 0)
            end, found = (await consumer.end_offsets([place]))[place], list[bytes]()
            async with asyncio.timeout(TIMEOUT_S):
                while await consumer.position(place) < end:
                    rows = (await consumer.getmany(timeout_ms=500)).values()
                    found += [record.value for some in rows for record in some]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


@pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])
@pytest.mark.parametrize("read", [with_librdkafka, with_kafka_python, with_aiokafka])
def test_a_reader_gets_to_the_end(start_broker: StartBroker, topic: str, configs: dict[str, str], read: Reader) -> None:
    broker = start_broker(durability="always")
    CLIENTS[0].create_topic(broker.address, topic, 1, configs)
    values = [b"%d" % number for number in range(10)]
    CLIENTS[0].produce(broker.address, topic, [Sent(0, None, value) for value in values], {})
    broker.kill()
    crash_store(broker)
    broker.start()
    assert read(broker.address, topic) == values
    CLIENTS[0].produce(broker.address, topic, [Sent(0, None, b"later")], {})
    assert read(broker.address, topic) == [*values, b"later"]
