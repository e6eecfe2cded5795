"""How many nodes and servers a load takes, from the costs in bench/report.md: `python -m bench.model`.

Whatever writes the report also writes this table into docs/scale.md, so the two always agree.

A model, not a measurement: it divides a load by what one core does, and leaves room. It assumes that partitions are
many times as many as nodes and shards, that clients batch as the row says, and that every record is read once, at the
tail, from the leader's cache. Nothing here was run at this size; `simulation.py` says what queues and uneven places
make of it.
"""

from __future__ import annotations

import re
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

REPORT: Final = Path(__file__).parent / "report.md"
PAGE: Final = REPORT.parents[1] / "docs" / "scale.md"
_HEAD: Final = "| load | CPU for a MB, broker / store | nodes | primaries for CPU | of 64 GB for an hour of records |\n"
ROOM: Final = 0.6
"""Of a core: what is left is for bursts, for a node or a primary that is away, and for background work."""
_READ_MS: Final = 0.7
"""Broker, for a MB to one consumer at the tail (report.md, note on consuming)."""
_SMALL_BATCHES_MS: Final = (10.0, 4.0)
"""Broker and store, for a MB in and out in batches of 16 KB (report.md, note on Kafka's own producer)."""
_MEMORY_FACTOR: Final = 1.2
_SERVER_GB: Final = 64
_RETENTION_S: Final = 3600


class Cost(NamedTuple):
    """CPU for a MB in and out once, in ms."""

    broker_ms: float
    store_ms: float


class Load(NamedTuple):
    name: str
    mb_s: float
    cost: Cost


class Needs(NamedTuple):
    nodes: int
    primaries_for_cpu: int
    primaries_for_memory: int


def measured(workload: str, report: str) -> Cost:
    """Of one workload: the row of the broker's CPU, and the one with the store's."""

    def figure(unit: str) -> float:
        found = re.search(rf"^\| {re.escape(workload)} +\| ms CPU/MB, {unit} +\| +([\d.]+)", report, re.MULTILINE)
        if found is None:
            raise ValueError(f"report.md has no row for {workload!r}, {unit}")
        return float(found[1])

    broker_ms = figure("broker process")
    return Cost(broker_ms + _READ_MS, figure("with the store's") - broker_ms)


def loads(report: str) -> list[Load]:
    large = measured("librdkafka produces 1 KB, 1 partition, acks all", report)
    many = measured("librdkafka produces 100 B, 1 partition, acks all", report)
    return [
        Load("1 GB/s, records of 1 KB, large batches", 1_000, large),
        Load("1 GB/s, records of 1 KB, batches of 16 KB", 1_000, Cost(*_SMALL_BATCHES_MS)),
        Load("10 million messages/s of 100 B, large batches", 1_000, many),
        Load("10 million messages/s of 100 B, batches of 16 KB", 1_000, Cost(*_SMALL_BATCHES_MS)),
    ]


def needs(load: Load) -> Needs:
    held_gb = load.mb_s * _RETENTION_S * _MEMORY_FACTOR / 1_000
    return Needs(
        ceil(load.mb_s * load.cost.broker_ms / 1_000 / ROOM),
        ceil(load.mb_s * load.cost.store_ms / 1_000 / ROOM),
        ceil(held_gb / _SERVER_GB),
    )


def table(report: str) -> str:
    rows = [_HEAD.rstrip(), "|---|---|---|---|---|"]
    for load in loads(report):
        found = needs(load)
        cost = f"{load.cost.broker_ms:.1f} / {load.cost.store_ms:.1f} ms"
        rows.append(
            f"| {load.name} | {cost} | {found.nodes} | {found.primaries_for_cpu} | {found.primaries_for_memory} |"
        )
    return "\n".join(rows)


def with_table(page: str, report: str) -> str:
    """The page with the table that this report gives; a page without a table, or a report without the costs, raises."""
    return replaced(page, _HEAD, table(report))


def replaced(page: str, head: str, table: str) -> str:
    """The page with another table of the same head."""
    before, found, rest = page.partition(head)
    if not found:
        raise ValueError(f"the page has no table {head.strip()}")
    _, blank, after = rest.partition("\n\n")
    return f"{before}{table}{blank}{after}"


if __name__ == "__main__":
    print(table(REPORT.read_text()))
