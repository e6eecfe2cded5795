"""What it costs to be watched: a console with a visitor, and scrapes, while clients produce and consume.

One broker, watched in every other turn. What counting costs is measured by itself: the two calls that every request
makes, against the CPU of a produce of one record.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.broker_process import free_port, wait_until
from tests.console.test_process import console_pids

from bench.rdkafka import Job, run_job
from bench.report import HEADRACE, Figure, Report
from bench.systems import CpuMeter, Headrace, start_python, topic
from bench.targets import LIMIT, UNWATCHED
from headrace.broker.metrics.requests import RequestMetrics
from headrace.wire.apis import PRODUCE
from headrace.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

_PART = "watching"
_PARTITIONS, _SIZE_BYTES = 6, 1_000
_CORE_PERCENT, _COUNTING_PERCENT = 5.0, 2.0
_CALLS = 200_000
_SMALL = {"linger.ms": 0, "batch.num.messages": 1, "acks": "1"}
"""One record in each request."""


class Turn(NamedTuple):
    broker_ms_per_mb: float
    console_percent: float
    """Of a core, while the clients were at work."""


def run(report: Report, *, quick: bool) -> None:
    repeats, records = (1, 20_000) if quick else (7, 200_000)
    turns: dict[bool, list[Turn]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        system = Headrace(Path(name), http_port=free_port(), console=True)
        try:
            wait_until(lambda: bool(console_pids(system.process)), "there is no console")
            _turn(system, records // 4)  # a first one is slower
            for _ in range(repeats):
                with _watched(int(str(system.process.settings["http_port"]))):
                    turns[True].append(_turn(system, records))
                turns[False].append(_turn(system, records))
            small_us = _small_produce_us(system, records // 20)
        finally:
            system.stop()
    costs = {HEADRACE: [one.broker_ms_per_mb for one in turns[True]], UNWATCHED: [one[0] for one in turns[False]]}
    report.add(Figure(_PART, "1 KB in and out, watched", "ms CPU/MB, broker process", costs, goal="watching"))
    console = [one.console_percent for one in turns[True]]
    limit = [_CORE_PERCENT] * repeats
    report.add(Figure(_PART, "console and scrapes", "% of a core", {HEADRACE: console, LIMIT: limit}, goal="console"))
    counting = [_counting_us() / small_us * 100 for _ in range(repeats)]
    limit = [_COUNTING_PERCENT] * repeats
    report.add(
        Figure(
            _PART, "counting, of a produce of 1 record", "% CPU", {HEADRACE: counting, LIMIT: limit}, goal="counting"
        )
    )


@contextlib.contextmanager
def _watched(port: int) -> Iterator[None]:
    watcher = start_python("bench.watcher", str(port), stdout=subprocess.PIPE)
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "watching\n"
        yield
    finally:
        watcher.kill()
        watcher.wait()


def _turn(system: Headrace, records: int) -> Turn:
    [console] = console_pids(system.process)
    pids = {**system.pids, "console": console}
    with topic(system, "watched", _PARTITIONS):
        began_s = time.monotonic()
        with CpuMeter(pids) as meter:
            for kind in ("produce", "consume"):
                run_job(Job(kind, system.address, "watched", records, _SIZE_BYTES, _PARTITIONS))
        took_s = time.monotonic() - began_s
    mb = 2 * records * _SIZE_BYTES / 1e6
    return Turn(meter.used_s["broker"] * 1000 / mb, meter.used_s["console"] / took_s * 100)


def _small_produce_us(system: Headrace, records: int) -> float:
    with topic(system, "small", 1), CpuMeter(system.pids) as meter:
        run_job(Job("produce", system.address, "small", records, 100, 1, _SMALL))
    return meter.used_s["broker"] / records * 1e6


def _counting_us() -> float:
    """What counting one produce takes: its time and the error codes of its answer."""
    metrics = RequestMetrics()
    response = ProduceResponse([TopicProduceResponse(partition_responses=[PartitionProduceResponse(0, 0, 1)])])
    rounds = []
    for _ in range(5):
        began_ns = time.process_time_ns()
        for _ in range(_CALLS // 5):
            metrics.answered(PRODUCE, response)
            metrics.took(PRODUCE, 0.001)
        rounds.append((time.process_time_ns() - began_ns) / (_CALLS // 5) / 1000)
    return median(rounds)
