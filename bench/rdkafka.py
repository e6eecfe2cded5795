"""Load from librdkafka (confluent-kafka), in a separate process, so that its CPU is counted separately.

`python -m bench.rdkafka '<job as JSON>'` prints what it found as JSON; without a job it takes them from its input, a
line each, until that ends. Settings are the library's own, but for the two
that are said here: a consumer may hold more records in advance than it does by default, because at its limit it
pauses for a second (fetch.queue.backoff.ms) however fast it is emptied, and then the pause is all that is measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from bench.payloads import values
from bench.systems import run_python

_READ_AHEAD = {"queued.min.messages": 5_000_000, "queued.max.messages.kbytes": 1 << 20, "fetch.queue.backoff.ms": 5}
_AT_ONCE = 10_000
_PATIENCE_S = 60.0


class Job(msgspec.Struct):
    """What to do: `produce`, `consume` or `tail` so many records."""

    kind: str
    address: str
    topic: str
    records: int
    size_bytes: int
    partitions: int = 1
    config: dict[str, Any] = {}
    payloads: str = ""
    """A file of values, for programs that do not make their own."""


class Done(msgspec.Struct):
    """What was done, and with how many Produce and Fetch requests."""

    records: int
    seconds: float
    cpu_s: float
    requests: int = 0

    @property
    def rate(self) -> float:
        return self.records / self.seconds


class _Requests:
    """How many requests a client has sent, by its own statistics."""

    settings: Final = {"statistics.interval.ms": 200}

    def __init__(self) -> None:
        self._newest = ""

    def note(self, statistics: str) -> None:
        self._newest = statistics

    def count(self, poll: Callable[[float], object]) -> int:
        """Until now: the next statistics tell, and they come while the client polls."""
        self._newest, deadline = "", time.monotonic() + _PATIENCE_S
        while not self._newest and time.monotonic() < deadline:
            poll(0.02)
        sent = [broker["req"] for broker in json.loads(self._newest)["brokers"].values()]
        return sum(kinds.get("Produce", 0) + kinds.get("Fetch", 0) for kinds in sent)


def run_job(job: Job) -> Done:
    """Does a job in a process of its own."""
    return msgspec.json.decode(run_python("bench.rdkafka", msgspec.json.encode(job).decode()), type=Done)


def produce(job: Job) -> Done:
    """Sends records as fast as they are taken, until the last is acknowledged."""
    failures: list[str] = []
    requests = _Requests()
    producer = Producer(
        {
            "bootstrap.servers": job.address,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(str(error)),
            "stats_cb": requests.note,
        }
        | requests.settings
        | job.config
    )
    producer.list_topics(job.topic, timeout=_PATIENCE_S)
    pool = values(job.size_bytes)
    began, cpu = time.perf_counter(), time.process_time()
    send, distinct, topic = producer.produce, len(pool), job.topic
    for number in range(job.records):
        try:
            send(topic, pool[number % distinct])
        except BufferError:
            producer.poll(0.01)
            while len(producer) > _AT_ONCE:
                producer.poll(0.001)
            send(topic, pool[number % distinct])
    left = producer.flush(_PATIENCE_S)
    done = Done(job.records, time.perf_counter() - began, time.process_time() - cpu)
    if left or failures:
        raise RuntimeError(f"{left} records were not acknowledged, {len(failures)} refused: {failures[:1]}")
    done.requests = requests.count(producer.poll)
    return done


def consume(job: Job) -> Done:
    """Reads a topic from its start until it has that many records; connected and informed before the clock starts."""
    requests = _Requests()
    consumer = _consumer(job, requests)
    began, cpu = time.perf_counter(), time.process_time()
    _assign(consumer, job)
    seen = _read(consumer, job.records)
    return _done(consumer, requests, seen, began, cpu)


def tail(job: Job) -> Done:
    """Reads a topic of one record as it is filled; the clock starts with the first of the others."""
    requests = _Requests()
    consumer = _consumer(job, requests)
    _assign(consumer, job)
    _read(consumer, 1)
    print('{"ready": true}', flush=True)
    first = _read(consumer, 1)
    began, cpu = time.perf_counter(), time.process_time()
    seen = _read(consumer, job.records - first)
    return _done(consumer, requests, seen, began, cpu)


def _consumer(job: Job, requests: _Requests) -> Consumer:
    settings = {"bootstrap.servers": job.address, "group.id": "bench", "enable.auto.commit": False}
    counted = {"stats_cb": requests.note} | requests.settings
    consumer = Consumer(settings | counted | _READ_AHEAD | job.config)
    consumer.list_topics(job.topic, timeout=_PATIENCE_S)
    return consumer


def _assign(consumer: Consumer, job: Job) -> None:
    consumer.assign([TopicPartition(job.topic, number, OFFSET_BEGINNING) for number in range(job.partitions)])


def _read(consumer: Consumer, count: int) -> int:
    seen = 0
    while seen < count:
        found = consumer.consume(min(_AT_ONCE, count - seen), timeout=_PATIENCE_S)
        if not found:
            raise RuntimeError(f"only {seen} of {count} records arrived")
        if found[0].error():
            raise KafkaException(found[0].error())
        seen += len(found)
    return seen


def _done(consumer: Consumer, requests: _Requests, seen: int, began: float, cpu: float) -> Done:
    done = Done(seen, time.perf_counter() - began, time.process_time() - cpu)
    done.requests = requests.count(consumer.poll)
    consumer.close()
    return done


def main() -> None:
    for line in sys.argv[1:] or sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        done = {"produce": produce, "consume": consume, "tail": tail}[job.kind](job)
        print(json.dumps(msgspec.to_builtins(done)), flush=True)


if __name__ == "__main__":
    main()
