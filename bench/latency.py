"""End-to-end latency, from produce() to the consumer, at a fixed rate well below saturation.

A producer sends a few records each millisecond, with `linger.ms` 0 and acks of all; each carries the moment at which
it was handed to the client. A consumer in another process compares it with the moment at which it gets the record, on
the clock that all processes share.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from bench.report import HEADRACE, KAFKA, NULL_BROKER, Figure, Report
from bench.systems import System, lineup, run_python, start_python, take_turns, topic, values_of

_RATE = 5_000
_TICK_S = 0.001
_WARM_UP_S = 1.0
_MOMENT = struct.Struct(">q")
_FILLER = bytes(100 - _MOMENT.size)
_PATIENCE_S = 30.0
_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


class Job(msgspec.Struct):
    """Send or receive so many records."""

    kind: str
    address: str
    topic: str
    records: int


def run(report: Report, *, quick: bool) -> None:
    seconds, repeats = (1, 1) if quick else (4, 5)
    with lineup(report, HEADRACE, NULL_BROKER, *([] if quick else [KAFKA])) as systems:
        if not quick:
            take_turns(systems, 1, lambda system: end_to_end(system, seconds))  # a first one is slower: Java compiles
        found = take_turns(systems, repeats, lambda system: end_to_end(system, seconds), seldom=[NULL_BROKER])
        for name in _PERCENTILES:
            values = values_of(found, lambda row, name=name: row[name], [one.name for one in systems])  # type: ignore[misc]
            goal = "latency" if name == "p99" else None
            report.add(Figure("latency", f"end to end, {_RATE:,}/s of 100 B, {name}", "ms", values, goal=goal))


def end_to_end(system: System, seconds: int) -> dict[str, float]:
    """Percentiles, in milliseconds, of so many seconds."""
    count = int((_WARM_UP_S + seconds) * _RATE)
    with topic(system, "bench"):
        receiver = start_python("bench.latency", _job("receive", system, count), stdout=subprocess.PIPE)
        assert receiver.stdout is not None
        try:
            if receiver.stdout.readline().strip() != "ready":
                raise RuntimeError("the consumer did not get ready")
            run_python("bench.latency", _job("send", system, count))
            return msgspec.json.decode(receiver.communicate(timeout=_PATIENCE_S)[0], type=dict[str, float])
        finally:
            receiver.kill()
            receiver.wait()


def _job(kind: str, system: System, count: int) -> str:
    return msgspec.json.encode(Job(kind, system.address, "bench", count)).decode()


def _send(job: Job) -> None:
    producer = Producer({"bootstrap.servers": job.address, "linger.ms": 0, "acks": "all"})
    producer.list_topics(job.topic, timeout=_PATIENCE_S)
    began, sent = time.monotonic(), 0
    while sent < job.records:
        due = min(job.records, int((time.monotonic() - began) * _RATE))
        for _ in range(due - sent):
            producer.produce(job.topic, _MOMENT.pack(time.monotonic_ns()) + _FILLER)
        sent = max(due, sent)
        producer.poll(0)
        time.sleep(_TICK_S)
    if left := producer.flush(_PATIENCE_S):
        raise RuntimeError(f"{left} records were not acknowledged")


def _receive(job: Job) -> dict[str, float]:
    settings = {"bootstrap.servers": job.address, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(job.topic, 0, OFFSET_BEGINNING)])
    consumer.poll(0.3)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    took_ms: list[float] = []
    while len(took_ms) < job.records:
        message = consumer.poll(_PATIENCE_S)
        if message is None:
            raise RuntimeError(f"only {len(took_ms)} of {job.records} records arrived")
        if message.error():
            raise KafkaException(message.error())
        took_ms.append((time.monotonic_ns() - _MOMENT.unpack_from(message.value() or b"")[0]) / 1e6)
    consumer.close()
    counted = sorted(took_ms[int(_WARM_UP_S * _RATE) :])
    return {name: counted[min(int(share * len(counted)), len(counted) - 1)] for name, share in _PERCENTILES.items()}


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    if job.kind == "send":
        _send(job)
    else:
        sys.stdout.write(msgspec.json.encode(_receive(job)).decode())


if __name__ == "__main__":
    main()
