"""Producing and consuming with librdkafka as fast as it can: records a second, and what a MB and a request cost.

Each turn makes a topic, fills it, and reads it from its start; topics fit into the broker's tail cache and into Kafka's
page cache (from_store.py is about those that do not). Reading from the tail is a turn of its own: a consumer that waits
at the end while a producer writes.
"""

from __future__ import annotations

from functools import partial

from bench.clients import Clients, rdkafka_clients
from bench.pace import PACE
from bench.report import HEADRACE, KAFKA, NULL_BROKER, RAW_REDIS, Figure, Report
from bench.systems import System, lineup, take_turns
from bench.turns import Turn, add_turns, tail_run, turn
from bench.workloads import Row, Workload, add_rows, workloads

QUICK = [Workload(100, 1, "all", "none", 50_000), Workload(1_000, 6, "all", "lz4", 10_000)]
BYTES = {100: 10**8, 1_000: 25 * 10**7}
_WARM_UP = Workload(1_000, 6, "all", "none", BYTES[1_000] // 1_000)
_WARM_UP_ROUNDS = 3
_REPEATS, _NULL_REPEATS = 5, 2


def run(report: Report, *, quick: bool) -> None:
    repeats, chosen = (1, QUICK) if quick else (_REPEATS, list(workloads(BYTES)))
    with lineup(report, HEADRACE, NULL_BROKER, *([] if quick else [KAFKA])) as systems, rdkafka_clients() as clients:
        if not quick:
            warm_up(clients, systems)
        PACE.share(len(chosen) + sum(workload.is_read_too for workload in chosen))
        for workload in chosen:
            _one_after_the_other(report, systems, clients, workload, repeats)
        for workload in chosen:
            if workload.is_read_too:
                measure = partial(tail_run, clients, workload)
                found = take_turns(systems, repeats, measure, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
                row = Row("consume", f"librdkafka, at the tail: {workload}", "consume")
                add_rows(report, row, systems, found)


def warm_up(clients: Clients, systems: list[System]) -> None:
    """A system's first work is slower: Java compiles, Python makes its codecs, and the store's memory is new to it.

    Kafka's broker takes less CPU from turn to turn until it has seen a gigabyte or so. The store pays a page fault for
    each page that its data has never had before, up to twice what an append costs otherwise.
    """
    take_turns(systems, _WARM_UP_ROUNDS, partial(turn, clients, _WARM_UP))
    take_turns(systems, 1, partial(tail_run, clients, _WARM_UP))


def rows_of(workload: Workload) -> tuple[Row, Row]:
    """Of producing, and of consuming from the start."""
    return (
        Row("produce", f"librdkafka: {workload}", "produce"),
        Row("consume", f"librdkafka, from the start: {workload}", "consume"),
    )


def _one_after_the_other(
    report: Report, systems: list[System], clients: Clients, workload: Workload, repeats: int
) -> None:
    # The null broker does the same whatever the acks are.
    chosen = systems if workload.is_read_too else [one for one in systems if one.name != NULL_BROKER]
    measure = partial(turn, clients, workload, with_limit=workload.is_read_too and workload.partitions == 1)
    found = take_turns(chosen, repeats, measure, seldom=[NULL_BROKER], seldom_repeats=_NULL_REPEATS)
    add_turns(report, rows_of(workload), chosen, found)
    _add_limits(report, found, workload)


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
