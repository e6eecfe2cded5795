"""The rows that are below Apache Kafka's, with the CPU of each process in the same runs, and what would be needed.

What is needed is reckoned: to be as fast, a MB has to take less time by what the ratio says, and of that time every
core can be put to use at most. If the servers' CPU less that is still something, they would have to cost no more than
that; if nothing is left, no server would be quick enough, and the client takes the rest: the null broker's column
shows what it takes beside a server that does nothing.
"""

from __future__ import annotations

import os

from bench.report import HEADRACE, KAFKA, NULL_BROKER, Figure, Report, short
from bench.tables import table
from bench.targets import TARGETS
from bench.workloads import CLIENT

_SYSTEMS = (HEADRACE, KAFKA, NULL_BROKER)
_ABOUT = """CPU in milliseconds a MB of values, client / broker / store, the medians of the same runs; a Java
client's program is warm, as Kafka's broker is. "Servers need" is what broker and store together may cost at most for
the row to be level with Apache Kafka, if all cores are busy; "the client" means that no cost of theirs would do."""


def missed_table(report: Report) -> str:
    """Empty if there are none."""
    goals = {target.goal: target for target in TARGETS if target.against == KAFKA}
    rows = []
    for figure in report.figures:
        ratio = figure.ratio(KAFKA) if figure.costs and figure.goal in goals else None
        if ratio is None or figure.goal is None or goals[figure.goal].is_met(ratio.median):
            continue
        cells = [_cost(figure, system) for system in _SYSTEMS]
        beside = figure.ratio(NULL_BROKER)
        name = f"{figure.part}: {figure.workload}"
        rows.append([name, str(ratio), str(beside or ""), *cells, _needed(figure, ratio.median)])
    if not rows:
        return ""
    head = ["row", "to Apache Kafka", "to null broker", *(f"CPU, {system}" for system in _SYSTEMS), "servers need"]
    return f"{_ABOUT}\n\n{table(head, rows)}"


def _cost(figure: Figure, system: str) -> str:
    return " / ".join(short(used) for used in figure.costs.get(system, {}).values())


def _needed(figure: Figure, ratio: float) -> str:
    size_mb = _record_mb(figure)
    if not size_mb:
        return ""
    cores = 1 if figure.goal == "own core" else os.cpu_count() or 1
    servers_ms = sum(used for what, used in figure.costs[HEADRACE].items() if what != CLIENT)
    spare_ms = 1000 / (figure.median(HEADRACE) * size_mb) * (1 - ratio) * cores
    left_ms = servers_ms - spare_ms
    return f"{short(left_ms)} instead of {short(servers_ms)}" if left_ms > 0 else "the client"


def _record_mb(figure: Figure) -> float:
    return 1e-3 if "1 KB" in figure.workload else 1e-4 if "100 B" in figure.workload else 0.0
