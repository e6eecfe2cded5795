"""kafka-python behind the interface of client.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import kafka
import kafka.errors
from kafka.admin import KafkaAdminClient, NewTopic

from tests.clients.client import (
    EARLIEST,
    READ_TIMEOUT_S,
    Client,
    Consumer,
    DeliveryFailed,
    Received,
    Sent,
    Start,
    received,
    with_underscores,
)


class KafkaPython(Client):
    name = "kafka-python"
    takes_empty_records = False
    takes_null_headers = False
    # It takes snappy from a package that has to be compiled.
    compressions = ("none", "gzip", "lz4", "zstd")

    def create_topic(self, address: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(configs))])
        finally:
            admin.close()

    def produce(self, address: str, topic: str, records: Iterable[Sent], settings: Mapping[str, Any]) -> list[int]:
        producer = kafka.KafkaProducer(bootstrap_servers=address, **with_underscores(settings))
        try:
            sent = [
                producer.send(topic, r.value, r.key, list(r.headers), partition=r.partition, timestamp_ms=r.timestamp)
                for r in records
            ]
            return [future.get(READ_TIMEOUT_S).offset for future in sent]
        except kafka.errors.KafkaError as error:
            raise DeliveryFailed(getattr(error, "errno", -1), str(error)) from error
        finally:
            producer.close(10)

    def consumer(self, address: str, settings: Mapping[str, Any]) -> Consumer:
        return KafkaPythonConsumer(kafka.KafkaConsumer(bootstrap_servers=address, **with_underscores(settings)))

    def begin_transactions(self, address: str) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id="mover")
        try:
            producer.init_transactions()
        finally:
            producer.close(1)


class KafkaPythonConsumer(Consumer):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assign(self, topic: str, start: Mapping[int, Start]) -> None:
        places = {kafka.TopicPartition(topic, index): at for index, at in start.items()}
        self._consumer.assign(list(places))
        for place, at in places.items():
            if isinstance(at, int):
                self._consumer.seek(place, at)
            elif at == EARLIEST:
                self._consumer.seek_to_beginning(place)
            else:
                self._consumer.seek_to_end(place)

    def poll(self, timeout_s: float) -> list[Received]:
        found = self._consumer.poll(int(timeout_s * 1000), max_records=10_000)
        return [received(record) for records in found.values() for record in records]

    def offsets_at(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        found = self._consumer.offsets_for_times({kafka.TopicPartition(topic, i): at for i, at in times.items()})
        return {place.partition: None if at is None else at.offset for place, at in found.items()}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = kafka.TopicPartition(topic, partition)
        return self._consumer.beginning_offsets([place])[place], self._consumer.end_offsets([place])[place]

    def partitions(self, topic: str) -> set[int]:
        return self._consumer.partitions_for_topic(topic) or set()

    def close(self) -> None:
        self._consumer.close()
