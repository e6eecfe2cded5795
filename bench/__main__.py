"""`make bench`: measures, prints a table, writes bench/report.md and its plots. `python -m bench produce` runs a part.

A part is a module here with `run(report, quick=...)` that adds its figures to the report (report.py).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from importlib import import_module
from pathlib import Path

from bench.machine import machine
from bench.plots import draw
from bench.render import markdown
from bench.report import Report

HERE = Path(__file__).parent
PARTS = {
    "throughput": "produce, consume from the start and at the tail",
    "latency": "end to end at a fixed rate",
    "small_producers": "100 connections, linger 0",
    "groups": "forming groups of 2, 20, 200; commits and offset fetches",
    "startup": "start to ready, and memory idle and after work",
    "scaling": "the cost of an operation as log, topics, groups and connections grow",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(f"{k}: {v}" for k, v in PARTS.items()))
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--out", type=Path, help="folder for report.md and plots (a full run writes to bench/)")
    chosen = parser.parse_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)} (there are {', '.join(PARTS)})")
    report = Report(facts=machine())
    failed = [part for part in chosen.parts or PARTS if not _measured(part, report, quick=chosen.quick)]
    print(f"\n{markdown(report)}")
    is_full = not chosen.parts and not chosen.quick
    if out := chosen.out or (HERE if is_full else None):
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.md").write_text(markdown(report, draw(report, out)))
        print(f"written: {out / 'report.md'}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def _measured(part: str, report: Report, *, quick: bool) -> bool:
    """Runs a part; one that fails leaves the others' figures alone."""
    print(f"{part}: {PARTS[part]}", flush=True)
    try:
        import_module(f"bench.{part}").run(report, quick=quick)
    except Exception as why:
        traceback.print_exc()
        report.leave_out(part, f"it failed: {why}")
        return False
    return True


if __name__ == "__main__":
    main()
