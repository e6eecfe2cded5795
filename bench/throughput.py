"""Producing and consuming as fast as the client can: records a second, and the CPU that a MB costs.

Each turn makes a topic, fills it, and reads it from its start; topics are larger than the memory in which Headrace
keeps its newest batches, so most of that is read from the store. Reading from the tail is a turn of its own: a consumer
that waits at the end while a producer writes.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import msgspec
from tests.redis_view import RedisView

from bench import java_clients, raw_redis
from bench.rdkafka import Done, Job, run_job
from bench.report import HEADRACE, KAFKA, NULL_BROKER, RAW_REDIS, Figure, Report
from bench.systems import CpuMeter, Headrace, System, has_kafka, lineup, start_python, take_turns, topic, values_of

_MB = 1e6


@dataclass(frozen=True)
class Workload:
    """One way to produce."""

    size_bytes: int
    partitions: int
    acks: str
    codec: str
    records: int

    def __str__(self) -> str:
        size = "1 KB" if self.size_bytes == 1_000 else f"{self.size_bytes} B"
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{size}, {partitions}, acks {self.acks}" + (f", {self.codec}" if self.codec != "none" else "")

    @property
    def config(self) -> dict[str, str]:
        return {"acks": self.acks, "compression.type": self.codec}

    @property
    def payload_mb(self) -> float:
        return self.records * self.size_bytes / _MB

    @property
    def is_read_too(self) -> bool:
        """What is stored does not depend on acks."""
        return self.acks == "all"


_QUICK = [Workload(100, 1, "all", "none", 50_000), Workload(1_000, 6, "all", "lz4", 10_000)]
_RDKAFKA_BYTES = {100: 10**8, 1_000: 2 * 10**8}
_JAVA_BYTES = {100: 8 * 10**7, 1_000: 8 * 10**7}
_JAVA_REPEATS = 3
"""Fewer, because most of a turn's time is the start of a Java program."""


@dataclass(frozen=True)
class Turn:
    """What one turn found; CPU by process, in milliseconds a MB of values."""

    produced: Done
    produce_cpu: dict[str, float]
    consumed: Done | None
    limit: raw_redis.Limit | None


def run(report: Report, *, quick: bool) -> None:
    repeats, workloads = (1, _QUICK) if quick else (5, list(_workloads(_RDKAFKA_BYTES)))
    with lineup(report, HEADRACE, NULL_BROKER, *([] if quick else [KAFKA])) as systems:
        if not quick:
            # A system's first work is slower: Java compiles, Python makes its codecs.
            take_turns(systems, 1, partial(_turn, Workload(100, 6, "all", "none", 300_000)))
        for workload in workloads:
            _one_after_the_other(report, systems, workload, repeats)
        for workload in workloads:
            if workload.is_read_too:
                _tail(report, systems, workload, repeats)
        if not quick and has_kafka(report):
            _java(report, systems, _JAVA_REPEATS)


def _workloads(total_bytes: Mapping[int, int]) -> Iterable[Workload]:
    """Every way, with records of those sizes and of so many bytes in all."""
    for size, partitions, acks, codec in product(total_bytes, (1, 6), ("1", "all"), ("none", "lz4")):
        yield Workload(size, partitions, acks, codec, total_bytes[size] // size)


# -- librdkafka -------------------------------------------------------------------------------------------------


def _one_after_the_other(report: Report, systems: list[System], workload: Workload, repeats: int) -> None:
    found = take_turns(systems, repeats, partial(_turn, workload))
    names = [system.name for system in systems]
    rates = values_of(found, lambda turn: turn.produced.rate, names)
    report.add(Figure("produce", f"librdkafka: {workload}", "records/s", rates, goal="produce"))
    if workload.is_read_too:
        rates = values_of(found, lambda turn: turn.consumed.rate if turn.consumed else 0.0, names)
        report.add(Figure("consume", f"librdkafka, from the start: {workload}", "records/s", rates, goal="consume"))
    _add_cpu(report, found, workload)


def _turn(workload: Workload, system: System) -> Turn:
    job = Job("produce", system.address, "bench", workload.records, workload.size_bytes, workload.partitions)
    with topic(system, "bench", workload.partitions):
        with CpuMeter(system.pids) as meter:
            produced = run_job(msgspec.structs.replace(job, config=workload.config))
        consumed = run_job(msgspec.structs.replace(job, kind="consume")) if workload.is_read_too else None
        limit = _raw(system) if isinstance(system, Headrace) and workload.partitions == 1 else None
    cpu = {what: used / workload.payload_mb * 1000 for what, used in meter.used_s.items()}
    return Turn(produced, cpu, consumed, limit)


def _raw(system: Headrace) -> raw_redis.Limit:
    with RedisView.of(system.process) as redis:
        key = redis.log_key("bench")
    return raw_redis.run(system.store_socket, key)


def _add_cpu(report: Report, found: dict[str, list[Turn]], workload: Workload) -> None:
    """The broker's CPU beside that of a process that does the least that could be done with the same bytes."""
    turns = found[HEADRACE]
    values = {HEADRACE: [turn.produce_cpu["broker"] for turn in turns]}
    limits = [turn.limit for turn in turns if turn.limit is not None]
    if limits:
        values[RAW_REDIS] = [limit.write_cpu_s * 1000 / workload.payload_mb for limit in limits]
    for name in (NULL_BROKER, KAFKA):
        if name in found:
            values[name] = [turn.produce_cpu["broker"] for turn in found[name]]
    unit = "ms CPU/MB, broker process"
    goal = "produce CPU" if limits else None
    report.add(Figure("CPU", f"librdkafka produces {workload}", unit, values, goal=goal))
    if limits:
        both = {
            HEADRACE: [sum(turn.produce_cpu.values()) for turn in turns],
            RAW_REDIS: [(limit.write_cpu_s + limit.write_store_cpu_s) * 1000 / workload.payload_mb for limit in limits],
        }
        report.add(Figure("CPU", f"librdkafka produces {workload}", "ms CPU/MB, with the store's", both))
        rates = {
            HEADRACE: [workload.payload_mb / turn.produced.seconds for turn in turns],
            RAW_REDIS: [workload.payload_mb / limit.write_s for limit in limits],
        }
        report.add(Figure("store limit", f"librdkafka produces {workload}, XADD", "MB/s", rates))
        if workload.is_read_too:
            reads = {
                HEADRACE: [workload.payload_mb / turn.consumed.seconds for turn in turns if turn.consumed],
                RAW_REDIS: [workload.payload_mb / limit.read_s for limit in limits],
            }
            report.add(Figure("store limit", f"librdkafka consumes {workload}, XRANGE", "MB/s", reads))


def _tail(report: Report, systems: list[System], workload: Workload, repeats: int) -> None:
    found = take_turns(systems, repeats, partial(tail_turn, workload))
    rates = values_of(found, lambda done: done.rate, [system.name for system in systems])
    report.add(Figure("consume", f"librdkafka, at the tail: {workload}", "records/s", rates, goal="consume"))


def tail_turn(workload: Workload, system: System) -> Done:
    """A consumer waits at the end of a topic that a producer fills; what the consumer did."""
    job = Job("tail", system.address, "bench", workload.records, workload.size_bytes, workload.partitions)
    with topic(system, "bench", workload.partitions):
        arguments = msgspec.json.encode(job).decode()
        consumer = start_python("bench.rdkafka", arguments, stdout=subprocess.PIPE)
        assert consumer.stdout is not None
        try:
            if consumer.stdout.readline().strip() != "ready":
                raise RuntimeError("the consumer at the tail did not get ready")
            run_job(msgspec.structs.replace(job, kind="produce", config=workload.config))
            return msgspec.json.decode(consumer.communicate(timeout=120)[0], type=Done)
        finally:
            consumer.kill()
            consumer.wait()


# -- Java -------------------------------------------------------------------------------------------------------


def _java(report: Report, systems: list[System], repeats: int) -> None:
    names = [system.name for system in systems]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        for workload in _workloads(_JAVA_BYTES):
            payloads = java_clients.payload_file(Path(folder), workload.size_bytes)
            found = take_turns(systems, repeats, partial(_java_turn, workload, payloads))
            rates = values_of(found, lambda rates: rates[0], names)
            report.add(Figure("produce", f"Java: {workload}", "records/s", rates, goal="produce"))
            if workload.is_read_too:
                rates = values_of(found, lambda rates: rates[1], names)
                report.add(Figure("consume", f"Java, from the start: {workload}", "records/s", rates, goal="consume"))
                rates = values_of(
                    take_turns(systems, repeats, partial(_java_tail_turn, workload, payloads)), float, names
                )
                report.add(Figure("consume", f"Java, at the tail: {workload}", "records/s", rates, goal="consume"))


def _java_turn(workload: Workload, payloads: Path, system: System) -> tuple[float, float]:
    with topic(system, "bench", workload.partitions):
        produced = _java_produce(workload, payloads, system)
        if not workload.is_read_too:
            return produced, 0.0
        return produced, java_clients.consume_rate(system.address, "bench", workload.records)


def _java_produce(workload: Workload, payloads: Path, system: System) -> float:
    return java_clients.produce_rate(system.address, "bench", workload.records, payloads, workload.config)


def _java_tail_turn(workload: Workload, payloads: Path, system: System) -> float:
    with topic(system, "bench", workload.partitions):
        run_job(Job("produce", system.address, "bench", 1, workload.size_bytes))
        produce = partial(_java_produce, workload, payloads, system)
        return java_clients.tail_rate(system.address, "bench", workload.records, produce)
