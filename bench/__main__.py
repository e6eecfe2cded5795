"""`make bench`: measures, prints a table, writes bench/report.md and its plots. `python -m bench produce` runs a part.

A part is a module here with `run(report, quick=...)` that adds its figures to the report (report.py).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bench.machine import machine
from bench.plots import draw
from bench.render import markdown
from bench.report import Report

HERE = Path(__file__).parent


class Part(NamedTuple):
    """A module of figures; one that needs more than this Python is not part of the quick form."""

    about: str
    in_quick: bool = True


PARTS = {
    "throughput": Part("produce, consume from the start and at the tail"),
    "stream": Part("format stream: in and out of one partition against raw XADD and XRANGE"),
    "store_share": Part("the store's CPU per MB, with and without its append-only file, and with other allocators"),
    "latency": Part("end to end at a fixed rate"),
    "small_producers": Part("100 connections, linger.ms=0"),
    "groups": Part("forming groups of 2, 20, 200; commits and offset fetches"),
    "transactions": Part("transactions of a producer, and of consume-transform-produce, with everysec and always"),
    "startup": Part("start to ready, and memory idle and after load"),
    "scaling": Part("the cost of an operation as log, topics, groups and connections grow"),
    "sizes": Part("100,000 partitions, 100 nodes and 10,000 connections on one node", in_quick=False),
    "spread": Part("the CPU that several nodes and several servers cost beside one of each", in_quick=False),
    "takeover": Part("the pause of partitions whose node is stopped or killed", in_quick=False),
    "archive": Part("topics into Delta tables, against Spark's own Kafka connector", in_quick=False),
    "security": Part("TLS beside Kafka's, the check of rights, and the event loop while many log in"),
    "watching": Part("what a console with a visitor, scrapes and counting cost a node under load"),
    "compaction": Part("a compacted topic: time, memory, and its effect on producers"),
    "cold": Part("records from the lake against records from Redis, and their effect on other clients"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="; ".join(f"{name}: {part.about}" for name, part in PARTS.items())
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--out", type=Path, help="folder for report.md and plots (a full run writes to bench/)")
    chosen = parser.parse_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)} (there are {', '.join(PARTS)})")
    report = Report(facts=machine())
    wanted = chosen.parts or [name for name, part in PARTS.items() if part.in_quick or not chosen.quick]
    out = chosen.out or (HERE if not chosen.parts and not chosen.quick else None)
    failed: list[str] = []
    for part in wanted:
        try:
            if not _measured(part, report, quick=chosen.quick):
                failed.append(part)
        except KeyboardInterrupt:
            report.leave_out(part, "interrupted; the results so far are below")
            break
        finally:
            if out:
                _write(report, out)
    print(f"\n{markdown(report)}")
    if out:
        print(f"written: {out / 'report.md'}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def _write(report: Report, out: Path) -> None:
    """Writes the report as it is by now: a run that is broken off leaves what it found."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(markdown(report, draw(report, out)))


def _measured(part: str, report: Report, *, quick: bool) -> bool:
    """Runs a part; one that fails leaves the others' figures alone."""
    print(f"{part}: {PARTS[part].about}", flush=True)
    try:
        import_module(f"bench.{part}").run(report, quick=quick)
    except Exception as why:
        traceback.print_exc()
        report.leave_out(part, f"it failed: {str(why).partition(chr(10))[0]}")
        return False
    return True


if __name__ == "__main__":
    main()
