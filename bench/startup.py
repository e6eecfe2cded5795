"""Time from the command to the first response, and the broker's memory, idle and after load.

Memory is the resident memory of its processes. Headrace's records are in its store's memory where Kafka's
are in files, so the store's own count of the dataset is taken off: what is left is what serving costs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.redis_view import RedisView

from bench.processes import rss_mib
from bench.rdkafka import Job, run_job
from bench.report import HEADRACE, KAFKA, Figure, Report
from bench.systems import Headrace, System, has_kafka, lineup, start, take_turns, topic, values_of

_MIB = 1 << 20


def run(report: Report, *, quick: bool) -> None:
    kafka = not quick and has_kafka(report)
    names = [HEADRACE, *([KAFKA] if kafka else [])]
    started: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        # Restarts on the same folder. The first start is left out: it makes the folder and warms the disk.
        for repeat in range(3 if quick else 6):
            for name in names:
                found = _start(name, Path(folder))
                started[name] += [found] if repeat else []
    ready = {name: [took_ms for took_ms, _ in found] for name, found in started.items()}
    report.add(Figure("start", "start to ready", "ms", ready, goal="start"))
    idle = {name: [weight for _, weight in found] for name, found in started.items()}
    report.add(Figure("memory", "idle", "MiB", idle, goal="memory"))
    records = 20_000 if quick else 1_000_000
    with lineup(report, *names) as systems:
        loaded = take_turns(systems, 1 if quick else 3, lambda system: _loaded_mib(system, records))
    workload = f"after {records:,} records of 100 B in and out"
    report.add(Figure("memory", workload, "MiB", values_of(loaded, float, names), goal="memory"))


def _start(name: str, folder: Path) -> tuple[float, float]:
    """Milliseconds until it answers, and what it weighs then."""
    began = time.perf_counter()
    system = start(name, folder)
    took_ms = (time.perf_counter() - began) * 1000
    try:
        return took_ms, _weight_mib(system)
    finally:
        system.stop()


def _loaded_mib(system: System, records: int) -> float:
    with topic(system, "bench", 6):
        run_job(Job("produce", system.address, "bench", records, 100, 6))
        run_job(Job("consume", system.address, "bench", records, 100, 6))
        return _weight_mib(system)


def _weight_mib(system: System) -> float:
    weight = sum(map(rss_mib, system.pids.values()))
    if isinstance(system, Headrace):
        with RedisView.of(system.process) as redis:
            # redis-py has parsed the reply of INFO already.
            weight -= redis.call("INFO", "memory")["used_memory_dataset"] / _MIB
    return weight
