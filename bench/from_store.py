"""Consuming from the start what the broker does not have in memory: after a restart, or from a topic larger than that.

Headrace runs without its tail cache, so each batch comes from the store over a socket. The rows named "from the start"
elsewhere are of topics that fit into its cache, as they fit into the page cache that Kafka reads, here as there.
"""

from __future__ import annotations

import contextlib
import tempfile
from functools import partial
from pathlib import Path

from bench import java, throughput
from bench.clients import Clients, java_clients, rdkafka_clients
from bench.pace import PACE
from bench.report import KAFKA, Report
from bench.systems import Headrace, System, has_kafka, start, take_turns
from bench.turns import Turn, turn
from bench.workloads import Row, Workload, add_rows

PART = "from the store"
_REPEATS = 5
_LOADS = [
    Workload(size, partitions, "all", "none", throughput.BYTES[size] // size)
    for size, partitions in ((100, 6), (1_000, 1), (1_000, 6))
]


def run(report: Report, *, quick: bool) -> None:
    """Beside Kafka alone: another broker's memory is what the null broker's rows show."""
    del quick
    if not has_kafka(report):
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        systems: list[System] = []
        for begin in (partial(Headrace, tail_cache_bytes=0), partial(start, KAFKA)):
            system = begin(Path(name))
            stack.callback(system.stop)
            systems.append(system)
        rdkafka, java_programs = stack.enter_context(rdkafka_clients()), stack.enter_context(java_clients())
        throughput.warm_up(rdkafka, systems)
        java.warm_up(java_programs, systems)
        PACE.share(2 * len(_LOADS))
        for workload in _LOADS:
            _rows(report, systems, "librdkafka", rdkafka, workload)
        for workload in _LOADS:
            _rows(report, systems, "Java", java_programs, workload)


def _rows(report: Report, systems: list[System], client: str, clients: Clients, workload: Workload) -> None:
    found: dict[str, list[Turn]] = take_turns(systems, _REPEATS, partial(turn, clients, workload))
    consumed = {name: [one.consumed for one in turns if one.consumed] for name, turns in found.items()}
    add_rows(report, Row(PART, f"{client}: {workload}", PART, cpu_part=PART, requests_part=PART), systems, consumed)
