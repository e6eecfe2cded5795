"""`make bench`: measures, prints a table, writes bench/report.md and its plots. `python -m bench produce` runs a part.

A part is a module here with `run(report, quick=...)` that adds its figures to the report (report.py). Its results are
kept in bench/results (results.py), and the report is composed of the newest of all parts: `--render` does only that.
The tables in docs/scale.md are computed from the report (model.py, simulation.py) and written with it.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bench import model, results, simulation
from bench.machine import machine
from bench.pace import PACE
from bench.plots import draw
from bench.render import markdown
from bench.report import Report

HERE = Path(__file__).parent


class Part(NamedTuple):
    """A module of figures; one that needs more than this Python is not part of the quick form."""

    about: str
    minutes: float
    """What it may take; past that its rows get fewer rounds (pace.py)."""
    in_quick: bool = True


PARTS = {
    "throughput": Part("librdkafka: produce, consume from the start and at the tail", 11),
    "java": Part("Kafka's own clients: the same", 15, in_quick=False),
    "own_core": Part("both, with a core for the servers and another for the client", 9),
    "from_store": Part("both: consume what the broker does not have in memory", 4, in_quick=False),
    "stream": Part("format stream: in and out of one partition against raw XADD and XRANGE", 1),
    "store_share": Part(
        "the store's CPU per MB, with and without its append-only file, and with other allocators", 1.5
    ),
    "latency": Part("end to end at a fixed rate", 2),
    "small_producers": Part("100 connections, linger.ms=0", 1),
    "groups": Part("forming groups of 2, 20, 200; commits and offset fetches", 2),
    "transactions": Part("transactions of a producer, and of consume-transform-produce, with everysec and always", 1.5),
    "startup": Part("start to ready, and memory idle and after load", 1),
    "scaling": Part("the cost of an operation as log, topics, groups and connections grow", 1.5),
    "sizes": Part("100,000 partitions, 100 nodes and 10,000 connections on one node", 1.5, in_quick=False),
    "spread": Part("a Redis Cluster, and several nodes, beside one of each", 5, in_quick=False),
    "takeover": Part("the pause of partitions whose node is stopped or killed", 5, in_quick=False),
    "archive": Part("topics into Delta tables, against Spark's own Kafka connector; replay", 3, in_quick=False),
    "security": Part("TLS beside Kafka's, the check of rights, and the event loop while many log in", 2),
    "watching": Part("what a console with a visitor, scrapes and counting cost a node under load", 1),
    "compaction": Part("a compacted topic: time, memory, and its effect on producers", 2.5),
    "cold": Part("records from the lake against records from Redis, and their effect on other clients", 2.5),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="; ".join(f"{name}: {part.about}" for name, part in PARTS.items())
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--render", action="store_true", help="measure nothing: compose the report of the last results")
    parser.add_argument("--missing", action="store_true", help="only parts without a result of this commit")
    parser.add_argument("--out", type=Path, help="folder for report.md and plots (a full run writes to bench/)")
    chosen = parser.parse_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)} (there are {', '.join(PARTS)})")
    # So that whatever was started is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    out = chosen.out or (HERE if chosen.render or not (chosen.parts or chosen.quick) else None)
    with _results(is_quick=chosen.quick) as folder:
        wanted = chosen.parts or [name for name, part in PARTS.items() if part.in_quick or not chosen.quick]
        if chosen.missing:
            known = {
                result.part for result in results.load(folder, PARTS) if result.moment.commit == results.now().commit
            }
            wanted = [part for part in wanted if part not in known]
        if chosen.render and not results.load(folder, PARTS):
            parser.error(f"there are no results in {folder}")
        failed = [] if chosen.render else _measured(wanted, folder, out, quick=chosen.quick)
        if out:
            _write(folder, out)
        shown = results.compose(folder, chosen.parts or PARTS)
        print(f"\n{markdown(shown)}")
    if out:
        print(f"written: {out / 'report.md'}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


@contextlib.contextmanager
def _results(*, is_quick: bool) -> Iterator[Path]:
    """Where results are kept; those of small sizes are forgotten."""
    if not is_quick:
        yield results.FOLDER
        return
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        yield Path(name)


def _measured(wanted: list[str], folder: Path, out: Path | None, *, quick: bool) -> list[str]:
    """Runs parts one after the other; which of them failed. The report is as new as the last part that is done."""
    failed: list[str] = []
    began = time.monotonic()
    for at, part in enumerate(wanted):
        due = sum(PARTS[name].minutes for name in wanted[:at])
        passed = (time.monotonic() - began) / 60
        clock = "" if quick else f" ({PARTS[part].minutes:g} min; {passed:.0f} of {due:.0f} min passed)"
        print(f"{part}: {PARTS[part].about}{clock}", flush=True)
        if not _measure(part, folder, quick=quick):
            failed.append(part)
        if out:
            _write(folder, out)
    return failed


def _write(folder: Path, out: Path) -> None:
    """Writes the report as it is by now: a run that is broken off leaves what it found."""
    out.mkdir(parents=True, exist_ok=True)
    report = results.compose(folder, PARTS)
    text = markdown(report, draw(report, out))
    (out / "report.md").write_text(text)
    if out == HERE:
        _write_page(model.PAGE, text)


def _write_page(page: Path, report: str) -> None:
    """Brings the page's tables up to date with a report; one without the costs, of a first run, changes nothing."""
    try:
        text = simulation.with_table(model.with_table(page.read_text(), report), report)
    except ValueError as why:
        print(f"{page.name} is not updated: {why}", flush=True)
        return
    page.write_text(text)


def _measure(part: str, folder: Path, *, quick: bool) -> bool:
    """Runs a part; one that fails leaves the others' figures alone, and its own of the last time."""
    report, moment, began = Report(), results.now(), time.monotonic()
    try:
        with PACE.of(float("inf") if quick else PARTS[part].minutes):
            import_module(f"bench.{part}").run(report, quick=quick)
    except Exception as why:
        traceback.print_exc()
        results.save_failure(folder, part, str(why).partition("\n")[0])
        return False
    minutes = (time.monotonic() - began) / 60
    results.save(
        folder, results.Result(part, moment, minutes, PACE.was_late, machine(), report.figures, report.left_out)
    )
    if not quick:
        print(f"  {part}: {minutes:.1f} min of {PARTS[part].minutes:g}", flush=True)
    return True


if __name__ == "__main__":
    main()
