"""Sends the same batches to Headrace and to a node of Apache Kafka, lets both compact them, and compares what is left.

The broker that is given is not used: both systems are started here, told to compact at once.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.kafka import KafkaNode, version
from tests.broker_process import BrokerProcess

from headrace.client.admin import Admin
from headrace.client.batch_sender import BatchSender
from headrace.client.cluster import Cluster
from headrace.client.reader import Reader
from headrace.wire.batch import DELETE_HORIZON, read_header
from headrace.wire.compression import CODECS
from headrace.wire.records import Header, Record, decode_batch, encode_batch
from interop.report import Checks

PROPERTIES = """
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
"""
EAGER = {
    "compaction_check_interval_ms": 50,
    "store_wait_ms": 100,
    "store_timeout_ms": 400,
}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "200"}
ROLL_S = 0.5
PATIENCE_S = 90.0
LAST = b"the last one"


class Kept(NamedTuple):
    """What is left of a batch, without what no two brokers have alike."""

    base_offset: int
    last_offset_delta: int
    base_sequence: int
    max_timestamp: int
    compression: str
    has_horizon: bool
    """Where it has tombstones: whether others ever had any depends on when it was compacted."""
    records: list[tuple[int, bytes | None, bytes | None, int, tuple[Header, ...]]]


class Both:
    """A topic in both systems."""

    def __init__(self, clusters: tuple[Cluster, Cluster], topic: str, **configs: str) -> None:
        self.topic = topic
        self._clusters = clusters
        for cluster in clusters:
            Admin(cluster).create_topic(topic, 1, CONFIGS | {name.replace("_", "."): v for name, v in configs.items()})
        self._senders: dict[str, list[BatchSender]] = {}

    def send(self, records: list[Record], *, codec: int = 0, producer: str = "one") -> None:
        """One batch, as it is, to both."""
        batch = encode_batch(records, compression=CODECS[codec])
        if producer not in self._senders:
            self._senders[producer] = [BatchSender(cluster, self.topic) for cluster in self._clusters]
        for sender in self._senders[producer]:
            sender.send({0: bytearray(batch)})

    def close_segment(self) -> None:
        """Kafka leaves the segment alone that is appended to, Headrace the last entry: here both are one record."""
        time.sleep(ROLL_S)
        self.send([Record(0, now_ms(), LAST, b"", [])])

    def wait_and_compare(self, expected: int) -> list[Kept]:
        """What is left in both, once both have so many records."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            kafka, headrace = (list(left(cluster, self.topic)) for cluster in self._clusters)
            if records_of(kafka) == records_of(headrace) == expected:
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"Kafka has {records_of(kafka)}, Headrace {records_of(headrace)}, not {expected}")
            time.sleep(0.2)
        assert kafka == headrace, f"Kafka: {differing(kafka, headrace)}; Headrace: {differing(headrace, kafka)}"
        return headrace


def differing(one: list[Kept], other: list[Kept]) -> list[Kept]:
    return [kept for kept in one if kept not in other][:3]


def records_of(kept: list[Kept]) -> int:
    return sum(len(batch.records) for batch in kept)


def left(cluster: Cluster, topic: str) -> Iterator[Kept]:
    """The batches of a topic as they come in fetches."""
    reader, offset = Reader(cluster), 0
    while batches := reader.fetch_raw(topic, 0, offset, max_wait_ms=0).batches:
        for batch in batches:
            header = read_header(batch)
            records = [(r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in decode_batch(batch)]
            yield Kept(
                header.base_offset,
                header.last_offset_delta,
                header.base_sequence,
                header.max_timestamp,
                header.compression,
                bool(header.attributes & DELETE_HORIZON) and any(value is None for _, _, value, _, _ in records),
                records,
            )
            offset = header.next_offset


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def random_batches(seed: int, batches: int, keys: int, tombstones: float) -> Iterator[list[Record]]:
    chance, base_ms = random.Random(seed), now_ms()
    for number in range(batches):
        yield [
            Record(
                at,
                base_ms + chance.randrange(50),
                b"key %d" % min(chance.randrange(keys), chance.randrange(keys)),
                None if chance.random() < tombstones else b"%d-%d" % (number, at) * chance.randrange(20),
                [("header", b"%d" % at)] * chance.randrange(3),
            )
            for at in range(chance.randrange(1, 60))
        ]


class Compacting:
    """The checks."""

    def __init__(self, clusters: tuple[Cluster, Cluster]) -> None:
        self._clusters = clusters
        self.checks = {
            f"random batches, {name}, leave the same batches": lambda codec=codec: self.random(codec)
            for codec, name in enumerate(CODECS)
        } | {
            "tombstones get a delete horizon and go after it": self.tombstones,
            "a second compaction joins what the first one left": self.twice,
            "the last batch of each producer stays, if need be as a header": self.producers,
        }

    def random(self, codec: int) -> None:
        both = Both(self._clusters, f"random-{codec}")
        latest: set[bytes | None] = set()
        for records in random_batches(codec, 60, 40, 0.1):
            both.send(records, codec=codec)
            latest |= {record.key for record in records}
        both.close_segment()
        both.wait_and_compare(len(latest) + 1)

    def tombstones(self) -> None:
        both = Both(self._clusters, "tombstones", delete_retention_ms="0")
        both.send([Record(0, now_ms(), b"a", b"1", []), Record(1, now_ms(), b"b", b"1", [])])
        both.send([Record(0, now_ms(), b"a", None, []), Record(1, now_ms(), b"c", b"1", [])])
        both.close_segment()
        time.sleep(ROLL_S)
        # What is new makes Kafka look again.
        both.send([Record(0, now_ms(), b"c", b"2", [])])
        both.close_segment()
        kept = both.wait_and_compare(4)
        assert not any(record[1] == b"a" for batch in kept for record in batch.records)

    def twice(self) -> None:
        both = Both(self._clusters, "twice")
        latest: set[bytes | None] = set()
        for number in range(3):
            for records in random_batches(number, 20, 30, 0.1):
                both.send(records)
                latest |= {record.key for record in records}
            both.close_segment()
            both.wait_and_compare(len(latest) + min(number + 1, 2))  # the last one, and the one before it

    def producers(self) -> None:
        both = Both(self._clusters, "producers")
        for producer in ("one", "two", "three"):
            both.send([Record(0, now_ms(), b"a", producer.encode(), [])], producer=producer)
            both.send([Record(0, now_ms(), b"b", producer.encode(), [])], producer=producer)
        both.close_segment()
        kept = both.wait_and_compare(3)
        assert sum(not batch.records for batch in kept) == 1, kept


def main() -> None:
    checks = Checks(version())
    with tempfile.TemporaryDirectory(prefix="headrace-interop-compaction-") as name:
        node = KafkaNode(Path(name) / "kafka", PROPERTIES)
        broker = BrokerProcess(Path(name) / "data", **EAGER)
        node.start()
        try:
            broker.start()
            with Cluster(f"127.0.0.1:{node.port}") as kafka, Cluster(broker.address) as headrace:
                for title, check in Compacting((kafka, headrace)).checks.items():
                    checks.check(title, check)
        finally:
            broker.end()
            node.stop()
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
