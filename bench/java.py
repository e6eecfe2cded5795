"""Producing and consuming with Kafka's own clients: the same rows as throughput.py has for librdkafka.

The clients' programs are warm and so are the brokers: before the first row each system has had turns of several kinds.
Groups do not wait for more members here: the figures leave that wait out anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.clients import Clients, java_clients
from bench.pace import PACE
from bench.report import HEADRACE, KAFKA, NULL_BROKER, Report
from bench.systems import System, has_kafka, lineup, take_turns
from bench.turns import add_turns, tail_run, turn
from bench.workloads import Row, Workload, add_rows, workloads

_BYTES = {100: 12 * 10**7, 1_000: 12 * 10**7}
_MORE = 2
"""With several partitions a request has several batches, and a row of as many bytes takes half the time."""
_WARM_UP = (Workload(100, 6, "all", "lz4", 1_500_000), Workload(1_000, 1, "all", "none", 200_000))
"""A client takes a fourth of the CPU after half a million records."""
_QUICK = Workload(1_000, 6, "all", "none", 10_000)
_REPEATS, _NULL_REPEATS = 5, 2


def run(report: Report, *, quick: bool) -> None:
    if not has_kafka(report):
        return
    chosen, repeats = ([_QUICK], 1) if quick else (list(loads()), _REPEATS)
    with lineup(report, HEADRACE, NULL_BROKER, KAFKA, are_groups_quick=True) as systems, java_clients() as clients:
        if not quick:
            warm_up(clients, systems)
        PACE.share(len(chosen) + sum(workload.is_read_too for workload in chosen))
        for workload in chosen:
            _rows(report, systems, clients, workload, repeats)


def loads() -> Iterator[Workload]:
    """The workloads, each of a size that takes seconds."""
    for workload in workloads(_BYTES):
        yield workload if workload.partitions == 1 else replace(workload, records=workload.records * _MORE)


def warm_up(clients: Clients, systems: list[System]) -> None:
    """Small batches and large ones, compressed or not, from the start and at the tail."""
    for workload in _WARM_UP:
        take_turns(systems, 1, partial(turn, clients, workload))
        take_turns(systems, 1, partial(tail_run, clients, workload))


def _rows(report: Report, systems: list[System], clients: Clients, workload: Workload, repeats: int) -> None:
    # The null broker does the same whatever the acks are.
    chosen = systems if workload.is_read_too else [one for one in systems if one.name != NULL_BROKER]
    turns = partial(take_turns, chosen, repeats, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
    rows = (
        Row("produce", f"Java: {workload}", "produce"),
        Row("consume", f"Java, from the start: {workload}", "consume"),
    )
    add_turns(report, rows, chosen, turns(partial(turn, clients, workload)))
    if workload.is_read_too:
        row = Row("consume", f"Java, at the tail: {workload}", "consume")
        add_rows(report, row, chosen, turns(partial(tail_run, clients, workload)))
