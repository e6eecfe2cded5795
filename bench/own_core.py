"""Servers and clients with a core each: a rate is then what one core of the servers, or one of the client, can do.

The servers of a system (broker and store, or Kafka) share one core, its clients have another, so no system gains by
what the other side leaves free. Where the client is the limit, the null broker is no faster than the others, and the
servers' CPU for a MB tells what a core of them could do.
"""

from __future__ import annotations

import contextlib
from functools import partial

from bench import java, throughput
from bench.clients import Clients, java_clients, rdkafka_clients
from bench.cores import on_core, two_cores
from bench.pace import PACE
from bench.report import HEADRACE, KAFKA, NULL_BROKER, Report
from bench.systems import System, has_kafka, lineup, take_turns
from bench.turns import add_turns, tail_run, turn
from bench.workloads import Row, Workload, add_rows

PART = "own core"
_REPEATS, _NULL_REPEATS = 5, 2
_LOADS = [
    Workload(size, partitions, "all", codec, throughput.BYTES[size] // size)
    for size, partitions, codec in (
        (100, 1, "none"), (100, 6, "none"), (1_000, 1, "none"), (1_000, 6, "none"), (1_000, 6, "lz4"),
    )
]  # fmt: skip
_AT_THE_TAIL = (6, "none")
"""Partitions and codec of the workloads that are read at the tail too."""
_RDKAFKA_SETS, _JAVA_SETS = 7, 5
"""Workloads, and those at the tail."""


def run(report: Report, *, quick: bool) -> None:
    cores = two_cores()
    if cores is None:
        report.leave_out(PART, "not run: it needs two cores")
        return
    with contextlib.ExitStack() as stack:
        with on_core(cores.servers):
            names = [HEADRACE, NULL_BROKER, *([] if quick else [KAFKA])]
            systems = stack.enter_context(lineup(report, *names, are_groups_quick=True))
        with on_core(cores.clients):
            rdkafka = stack.enter_context(rdkafka_clients())
            if not quick:
                throughput.warm_up(rdkafka, systems)
                PACE.share(_RDKAFKA_SETS + _JAVA_SETS)
            for workload in throughput.QUICK if quick else _LOADS:
                _rdkafka(report, systems, rdkafka, workload, 1 if quick else _REPEATS)
            if not quick and has_kafka(report):
                clients = stack.enter_context(java_clients())
                java.warm_up(clients, systems)
                PACE.share(_JAVA_SETS)
                for workload in java.loads():
                    if workload.is_read_too and workload.codec == "none":
                        _java(report, systems, clients, workload)


def _row(workload: str) -> Row:
    return Row(PART, workload, PART, cpu_part=PART, requests_part=PART)


def _rdkafka(report: Report, systems: list[System], clients: Clients, workload: Workload, repeats: int) -> None:
    turns = partial(take_turns, systems, repeats, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
    rows = _row(f"librdkafka produces: {workload}"), _row(f"librdkafka, from the start: {workload}")
    add_turns(report, rows, systems, turns(partial(turn, clients, workload)))
    if (workload.partitions, workload.codec) == _AT_THE_TAIL:
        tails = turns(partial(tail_run, clients, workload))
        add_rows(report, _row(f"librdkafka, at the tail: {workload}"), systems, tails)


def _java(report: Report, systems: list[System], clients: Clients, workload: Workload) -> None:
    turns = partial(take_turns, systems, _REPEATS, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
    rows = _row(f"Java produces: {workload}"), _row(f"Java, from the start: {workload}")
    add_turns(report, rows, systems, turns(partial(turn, clients, workload)))
    if workload.size_bytes == 1_000 and (workload.partitions, workload.codec) == _AT_THE_TAIL:
        tails = turns(partial(tail_run, clients, workload))
        add_rows(report, _row(f"Java, at the tail: {workload}"), systems, tails)
