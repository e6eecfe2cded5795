"""Producing and consuming with Kafka's own programs: the same rows as throughput.py has for librdkafka.

Fewer rounds, because most of a turn's time is the start of a Java program. Groups do not wait for more members here:
the figures leave that wait out anyway.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from bench import java_clients, throughput
from bench.rdkafka import Job, run_job
from bench.report import HEADRACE, KAFKA, NULL_BROKER, Report
from bench.systems import CpuMeter, System, has_kafka, lineup, take_turns, topic
from bench.throughput import Turn, add_turns
from bench.workloads import Row, Run, Workload, add_rows, run_of, workloads

BYTES = {100: 8 * 10**7, 1_000: 8 * 10**7}
_REPEATS = 3


def run(report: Report, *, quick: bool) -> None:
    if not has_kafka(report):
        return
    total, repeats = ({1_000: 10**7}, 1) if quick else (BYTES, _REPEATS)
    with (
        lineup(report, HEADRACE, NULL_BROKER, KAFKA, are_groups_quick=True) as systems,
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
    ):
        if not quick:
            take_turns(systems, 1, partial(throughput.turn, throughput.WARM_UP))
        for workload in workloads(total):
            _rows(report, systems, workload, Path(folder), repeats)


def _rows(report: Report, systems: list[System], workload: Workload, folder: Path, repeats: int) -> None:
    payloads = java_clients.payload_file(folder, workload.size_bytes)
    # The null broker does the same whatever the acks are.
    chosen = systems if workload.is_read_too else [one for one in systems if one.name != NULL_BROKER]
    found = take_turns(chosen, repeats, partial(turn, workload, payloads), seldom=[NULL_BROKER])
    rows = (
        Row("produce", f"Java: {workload}", "produce"),
        Row("consume", f"Java, from the start: {workload}", "consume"),
    )
    add_turns(report, rows, chosen, found)
    if workload.is_read_too:
        tails = take_turns(chosen, repeats, partial(tail_run, workload, payloads), seldom=[NULL_BROKER])
        add_rows(report, Row("consume", f"Java, at the tail: {workload}", "consume"), chosen, tails)


def turn(workload: Workload, payloads: Path, system: System) -> Turn:
    """Fills a topic and reads it from its start."""
    consumed = None
    with topic(system, "bench", workload.partitions):
        with CpuMeter(system.pids) as meter:
            done = _produce(workload, payloads, system)
        produced = run_of(done, meter, workload)
        if workload.is_read_too:
            with CpuMeter(system.pids) as meter:
                done = java_clients.consume(system.address, "bench", workload.records)
            consumed = run_of(done, meter, workload)
    return Turn(produced, consumed, None)


def _produce(workload: Workload, payloads: Path, system: System) -> java_clients.Ran:
    return java_clients.produce(system.address, "bench", workload.records, payloads, workload.config)


def tail_run(workload: Workload, payloads: Path, system: System) -> Run:
    """A consumer waits at the end of a topic that a producer fills."""
    with topic(system, "bench", workload.partitions):
        run_job(Job("produce", system.address, "bench", 1, workload.size_bytes))
        with CpuMeter(system.pids) as meter:
            send = partial(_produce, workload, payloads, system)
            done = java_clients.tail(system.address, "bench", workload.records, send)
    return run_of(done, meter, workload)
