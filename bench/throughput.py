"""Producing and consuming with librdkafka as fast as it can: records a second, and what a MB and a request cost.

Each turn makes a topic, fills it, and reads it from its start; topics are larger than the memory in which Headrace
keeps its newest batches, so most of that is read from the store. Reading from the tail is a turn of its own: a consumer
that waits at the end while a producer writes.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import partial

import msgspec
from tests.redis_view import RedisView

from bench import raw_redis
from bench.rdkafka import Done, Job, run_job
from bench.report import HEADRACE, KAFKA, NULL_BROKER, RAW_REDIS, Figure, Report
from bench.systems import CpuMeter, Headrace, System, lineup, start_python, take_turns, topic
from bench.workloads import Row, Run, Workload, add_rows, run_of, workloads

QUICK = [Workload(100, 1, "all", "none", 50_000), Workload(1_000, 6, "all", "lz4", 10_000)]
WARM_UP = Workload(100, 6, "all", "none", 300_000)
"""A system's first work is slower: Java compiles, Python makes its codecs."""
BYTES = {100: 10**8, 1_000: 2 * 10**8}
_REPEATS, _NULL_REPEATS = 4, 2


@dataclass(frozen=True)
class Turn:
    """What one turn found."""

    produced: Run
    consumed: Run | None
    limit: raw_redis.Limit | None


def run(report: Report, *, quick: bool) -> None:
    repeats, chosen = (1, QUICK) if quick else (_REPEATS, list(workloads(BYTES)))
    with lineup(report, HEADRACE, NULL_BROKER, *([] if quick else [KAFKA])) as systems:
        if not quick:
            take_turns(systems, 1, partial(turn, WARM_UP))
        for workload in chosen:
            _one_after_the_other(report, systems, workload, repeats)
        for workload in chosen:
            if workload.is_read_too:
                measure = partial(tail_run, workload)
                found = take_turns(systems, repeats, measure, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
                row = Row("consume", f"librdkafka, at the tail: {workload}", "consume")
                add_rows(report, row, systems, found)


def rows_of(workload: Workload) -> tuple[Row, Row]:
    """Of producing, and of consuming from the start."""
    return (
        Row("produce", f"librdkafka: {workload}", "produce"),
        Row("consume", f"librdkafka, from the start: {workload}", "consume"),
    )


def _one_after_the_other(report: Report, systems: list[System], workload: Workload, repeats: int) -> None:
    # The null broker does the same whatever the acks are.
    chosen = systems if workload.is_read_too else [one for one in systems if one.name != NULL_BROKER]
    measure = partial(turn, workload, with_limit=workload.is_read_too and workload.partitions == 1)
    found = take_turns(chosen, repeats, measure, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
    add_turns(report, rows_of(workload), chosen, found)
    _add_limits(report, found, workload)


def add_turns(report: Report, rows: tuple[Row, Row], systems: list[System], found: dict[str, list[Turn]]) -> None:
    """The rows of producing, and of consuming where that was done."""
    producing, consuming = rows
    add_rows(report, producing, systems, {name: [one.produced for one in turns] for name, turns in found.items()})
    consumed = {name: [one.consumed for one in turns if one.consumed] for name, turns in found.items()}
    if any(consumed.values()):
        add_rows(report, consuming, systems, consumed)


def turn(workload: Workload, system: System, *, with_limit: bool = False) -> Turn:
    """Fills a topic and reads it from its start; what raw Redis does with its entries, if that is asked for."""
    job = Job("produce", system.address, "bench", workload.records, workload.size_bytes, workload.partitions)
    consumed = None
    with topic(system, "bench", workload.partitions):
        with CpuMeter(system.pids) as meter:
            done = run_job(msgspec.structs.replace(job, config=workload.config))
        produced = run_of(done, meter, workload)
        if workload.is_read_too:
            with CpuMeter(system.pids) as meter:
                done = run_job(msgspec.structs.replace(job, kind="consume"))
            consumed = run_of(done, meter, workload)
        limit = _raw(system) if with_limit and isinstance(system, Headrace) else None
    return Turn(produced, consumed, limit)


def _raw(system: Headrace) -> raw_redis.Limit:
    with RedisView.of(system.process) as redis:
        key = redis.log_key("bench")
    return raw_redis.run(system.store_socket, key)


def _add_limits(report: Report, found: dict[str, list[Turn]], workload: Workload) -> None:
    """Beside a process that does the least that could be done with the same bytes."""
    turns = found[HEADRACE]
    limits = [turn.limit for turn in turns if turn.limit is not None]
    if not limits:
        return
    name, mb = f"librdkafka produces {workload}", workload.payload_mb
    values = {HEADRACE: [turn.produced.cpu_ms["broker"] for turn in turns]}
    values[RAW_REDIS] = [limit.write_cpu_s * 1000 / mb for limit in limits]
    for peer in (NULL_BROKER, KAFKA):
        if peer in found:
            values[peer] = [turn.produced.cpu_ms["broker"] for turn in found[peer]]
    report.add(Figure("CPU", name, "ms CPU/MB, broker process", values, goal="produce CPU"))
    both = {
        HEADRACE: [turn.produced.servers_ms for turn in turns],
        RAW_REDIS: [(limit.write_cpu_s + limit.write_store_cpu_s) * 1000 / mb for limit in limits],
    }
    report.add(Figure("CPU", name, "ms CPU/MB, with the store's", both))
    size_mb = workload.size_bytes / 1e6
    writes = {
        HEADRACE: [turn.produced.rate * size_mb for turn in turns],
        RAW_REDIS: [mb / limit.write_s for limit in limits],
    }
    report.add(Figure("store limit", f"{name}, XADD", "MB/s", writes))
    reads = {
        HEADRACE: [turn.consumed.rate * size_mb for turn in turns if turn.consumed],
        RAW_REDIS: [mb / limit.read_s for limit in limits],
    }
    report.add(Figure("store limit", f"librdkafka consumes {workload}, XRANGE", "MB/s", reads))


def tail_run(workload: Workload, system: System) -> Run:
    """A consumer waits at the end of a topic that a producer fills: its rate, and what both cost."""
    with CpuMeter(system.pids) as meter:
        done = tail_turn(workload, system)
    return run_of(done, meter, workload)


def tail_turn(workload: Workload, system: System) -> Done:
    """What the consumer did; CPU and requests are those of the producer too."""
    job = Job("tail", system.address, "bench", workload.records, workload.size_bytes, workload.partitions)
    with topic(system, "bench", workload.partitions):
        arguments = msgspec.json.encode(job).decode()
        consumer = start_python("bench.rdkafka", arguments, stdout=subprocess.PIPE)
        assert consumer.stdout is not None
        try:
            if consumer.stdout.readline().strip() != "ready":
                raise RuntimeError("the consumer at the tail did not get ready")
            sent = run_job(msgspec.structs.replace(job, kind="produce", config=workload.config))
            read = msgspec.json.decode(consumer.communicate(timeout=120)[0], type=Done)
            read.cpu_s += sent.cpu_s
            read.requests += sent.requests
            return read
        finally:
            consumer.kill()
            consumer.wait()
