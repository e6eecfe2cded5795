"""confluent-kafka (librdkafka) behind the interface of client.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.client import (
    EARLIEST,
    LATEST,
    READ_TIMEOUT_S,
    Client,
    Consumer,
    DeliveryFailed,
    Received,
    Sent,
    Start,
)


class ConfluentKafka(Client):
    name = "confluent-kafka"

    def create_topic(self, address: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        (made,) = admin.create_topics([NewTopic(topic, partitions, config=dict(configs))]).values()
        made.result(30)

    def produce(self, address: str, topic: str, records: Iterable[Sent], settings: Mapping[str, Any]) -> list[int]:
        producer = confluent_kafka.Producer({"bootstrap.servers": address, **settings})
        offsets: dict[int, int] = {}
        failures: list[DeliveryFailed] = []

        def delivered(number: int, error: Any, message: Any) -> None:
            if error is not None:
                failures.append(DeliveryFailed(error.code(), error.str()))
            offsets[number] = -1 if message.offset() is None else message.offset()

        for number, record in enumerate(records):
            while True:
                try:
                    producer.produce(
                        topic,
                        record.value,
                        record.key,
                        record.partition,
                        on_delivery=partial(delivered, number),
                        headers=list(record.headers),
                        timestamp=record.timestamp or 0,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        left = producer.flush(READ_TIMEOUT_S)
        if failures:
            raise failures[0]
        assert left == 0, f"{left} records were not delivered"
        return [offsets[number] for number in range(len(offsets))]

    def consumer(self, address: str, settings: Mapping[str, Any]) -> Consumer:
        return ConfluentConsumer(
            confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "readers", **settings})
        )

    def begin_transactions(self, address: str) -> None:
        confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "mover"}).init_transactions()


class ConfluentConsumer(Consumer):
    _STARTS = {EARLIEST: confluent_kafka.OFFSET_BEGINNING, LATEST: confluent_kafka.OFFSET_END}

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assign(self, topic: str, start: Mapping[int, Start]) -> None:
        places = {index: at if isinstance(at, int) else self._STARTS[at] for index, at in start.items()}
        self._consumer.assign([confluent_kafka.TopicPartition(topic, index, at) for index, at in places.items()])

    def poll(self, timeout_s: float) -> list[Received]:
        first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self._consumer.consume(10_000, 0)]
        for message in messages:
            if message.error() is not None:
                raise DeliveryFailed(message.error().code(), message.error().str())
        return [
            Received(
                m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())
            )
            for m in messages
        ]

    def offsets_at(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        asked = [confluent_kafka.TopicPartition(topic, index, at) for index, at in times.items()]
        found = self._consumer.offsets_for_times(asked, timeout=30)
        return {one.partition: None if one.offset == confluent_kafka.OFFSET_END else one.offset for one in found}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found: tuple[int, int] = self._consumer.get_watermark_offsets(
            confluent_kafka.TopicPartition(topic, partition), timeout=30
        )
        return found

    def partitions(self, topic: str) -> set[int]:
        return set(self._consumer.list_topics(topic, timeout=30).topics[topic].partitions)

    def close(self) -> None:
        self._consumer.close()
