"""Transactions of one producer, and of a consumer that transforms and produces, beside Apache Kafka.

A transaction has 100 records over 6 partitions; the second kind reads as many in a consumer group, and commits their
offsets with it. The client is librdkafka. Kafka answers before anything is on disk, to which `everysec` is nearest;
with `always` every step of a transaction waits for the disk. Both are measured.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.payloads import values
from bench.report import KAFKA, Figure, Report
from bench.systems import Headrace, Kafka, System, has_kafka, take_turns, topic
from bench.targets import ALWAYS, EVERYSEC

_PARTITIONS = 6
_RECORDS = 100
_RECORD_BYTES = 100
_WAIT_S = 60.0
_PART = "transactions"


def run(report: Report, *, quick: bool) -> None:
    count, repeats = (20, 1) if quick else (200, 5)
    with _systems(report, with_kafka=not quick) as systems:
        if not quick:
            take_turns(systems, 1, lambda system: produce(system, count))  # a first one is slower: Java compiles
            take_turns(systems, 1, lambda system: transform(system, count))
        names = [system.name for system in systems]
        for what, measure in (("one producer", produce), ("consume, transform, produce", transform)):
            found = take_turns(systems, repeats, lambda system: measure(system, count))  # noqa: B023
            workload = f"{what}: {_RECORDS} records each, {_PARTITIONS} partitions"
            rates = {name: found[name] for name in names}
            report.add(Figure(_PART, workload, "transactions/s", rates, goal=_PART))


@contextlib.contextmanager
def _systems(report: Report, *, with_kafka: bool) -> Iterator[list[System]]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        started: list[System] = []
        for title, durability in ((EVERYSEC, "everysec"), (ALWAYS, "always")):
            system: System = Headrace(Path(name) / durability, durability=durability)
            system.name = title
            stack.callback(system.stop)
            started.append(system)
        if with_kafka and has_kafka(report):
            kafka = Kafka(Path(name))
            kafka.name = KAFKA
            stack.callback(kafka.stop)
            started.append(kafka)
        yield started


def _producer(system: System) -> Producer:
    producer = Producer({"bootstrap.servers": system.address, "transactional.id": f"bench-{time.time_ns()}"})
    producer.init_transactions(_WAIT_S)
    return producer


def produce(system: System, count: int) -> float:
    """Transactions a second of a producer that does nothing else."""
    with topic(system, "bench", _PARTITIONS) as name:
        producer, sent = _producer(system), values(_RECORD_BYTES)
        began = time.perf_counter()
        for _ in range(count):
            producer.begin_transaction()
            for number in range(_RECORDS):
                producer.produce(name, sent[number], partition=number % _PARTITIONS)
            producer.commit_transaction(_WAIT_S)
        return count / (time.perf_counter() - began)


def transform(system: System, count: int) -> float:
    """Transactions a second, each of which copies what it reads and commits how far it has read."""
    with topic(system, "source", _PARTITIONS) as source, topic(system, "copies", _PARTITIONS) as copies:
        plain = Producer({"bootstrap.servers": system.address, "linger.ms": 5})
        sent = values(_RECORD_BYTES)
        for number in range(count * _RECORDS):
            plain.produce(source, sent[number % len(sent)], partition=number % _PARTITIONS)
            plain.poll(0)
        plain.flush(_WAIT_S)
        consumer = Consumer(
            {
                "bootstrap.servers": system.address,
                "group.id": f"bench-{time.time_ns()}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([source])
        producer = _producer(system)
        batch = _read(consumer)  # the group has formed by then
        began = time.perf_counter()
        for at in range(count):
            producer.begin_transaction()
            for message in batch:
                producer.produce(copies, message.value(), partition=message.partition() or 0)
            producer.send_offsets_to_transaction(_positions(batch), consumer.consumer_group_metadata(), _WAIT_S)
            producer.commit_transaction(_WAIT_S)
            if at + 1 < count:
                batch = _read(consumer)
        took_s = time.perf_counter() - began
        consumer.close()
        return count / took_s


def _read(consumer: Consumer) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + _WAIT_S
    while len(found) < _RECORDS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {len(found)} of {_RECORDS} records arrived")
        found += [one for one in consumer.consume(_RECORDS - len(found), 1.0) if one.error() is None]
    return found


def _positions(batch: list[Message]) -> list[TopicPartition]:
    last = {(one.topic() or "", one.partition() or 0): (one.offset() or 0) + 1 for one in batch}
    return [TopicPartition(name, number, offset) for (name, number), offset in last.items()]
