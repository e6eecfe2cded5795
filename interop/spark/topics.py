"""Topics as librdkafka writes and sees them: a second opinion on what the connector reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from headrace.client import Admin, Cluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LIMIT_S = 60.0
TIME_MS = 1_700_000_000_000
"""The time of record 0; each has one of its own."""
ANY_PARTITION = -1

HeaderPair = tuple[str, str | bytes | None]


@dataclass(frozen=True, order=True)
class Seen:
    """One record as a client shows it. Without headers is an empty tuple: librdkafka and Spark both say None."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...] = field(default=())

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[HeaderPair, ...]]:
        """What a producer gave."""
        return self.key, self.value, self.headers


class Topic:
    """A topic of its own for one check."""

    def __init__(self, address: str, name: str, partitions: int = 2, **configs: str) -> None:
        self.address, self.name = address, name
        with Cluster(address) as cluster:
            # The records have times of 2023, which retention would not keep.
            Admin(cluster).create_topic(name, partitions, {"retention.ms": "-1"} | configs)

    @property
    def options(self) -> dict[str, str]:
        """What a query of it needs."""
        return {"kafka.bootstrap.servers": self.address, "subscribe": self.name}

    def send(self, numbers: Iterable[int], codec: str = "none", partition: int | None = None) -> None:
        """Records whose keys, values and headers are now and then null or empty."""
        producer = Producer({"bootstrap.servers": self.address, "compression.type": codec, "linger.ms": 20})
        for number in numbers:
            producer.produce(
                self.name,
                key=None if number % 7 == 0 else b"" if number % 7 == 1 else b"key-%d" % number,
                value=None if number % 5 == 0 else b"" if number % 5 == 1 else b'{"n": %d}\x00\xff' % number,
                headers=_headers(number),
                timestamp=TIME_MS + number,
                partition=ANY_PARTITION if partition is None else partition,
            )
        if left := producer.flush(LIMIT_S):
            raise AssertionError(f"{left} records were not acknowledged")

    def seen(self) -> list[Seen]:
        """All of it, in the order of partitions and offsets."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "interop", "enable.auto.commit": False})
        try:
            found = consumer.list_topics(self.name, LIMIT_S).topics[self.name]
            return sorted(record for number in found.partitions for record in _partition(consumer, self.name, number))
        finally:
            consumer.close()


def _headers(number: int) -> list[HeaderPair]:
    """Names may come twice, values may be null or empty, and the order counts."""
    every: list[list[HeaderPair]] = [
        [],
        [("trace", b"%d" % number)],
        [("b", b"\x00\x01"), ("a", None), ("b", b"")],
    ]
    return every[number % len(every)]


def _partition(consumer: Consumer, topic: str, number: int) -> list[Seen]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), LIMIT_S)
    records: list[Seen] = []
    if low == high:
        return records
    consumer.assign([TopicPartition(topic, number, low)])
    while consumer.position([TopicPartition(topic, number)])[0].offset < high:
        message = consumer.poll(LIMIT_S)
        if message is None:
            raise AssertionError(f"{topic}-{number}: {high - low} offsets, {len(records)} records arrived")
        if error := message.error():
            raise AssertionError(error.str())
        records.append(_seen(message))
    return records


def _seen(message: Message[bytes, bytes]) -> Seen:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = cast(list[HeaderPair] | None, message.headers())
    return Seen(partition, offset, message.timestamp()[1], message.key(), message.value(), tuple(headers or ()))
