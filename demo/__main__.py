"""`make demo`: runs everything end to end and cross-checks every count. Exit code 1: some counts differ.

`python -m demo --orders 5000` is a shorter run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from demo.stage import Stage, save_plot
from demo.story import Story
from demo.story_errors import Disagreement
from headrace.lake.session import NoJava, check_java

ORDERS = 240_000


def main() -> None:
    what = "Runs everything end to end and cross-checks every count."
    parser = argparse.ArgumentParser(prog="python -m demo", description=what)
    parser.add_argument("--orders", type=int, default=ORDERS, help=f"number of orders  [default: {ORDERS:,}]")
    parser.add_argument("--plot", type=Path, help="also save the plot to this SVG or PNG file")
    chosen = parser.parse_args()
    console = Console()
    stage = Stage(console)
    began = time.perf_counter()
    try:
        check_java()
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
            outcome = Story(Path(folder), chosen.orders, stage).tell()
    except (Disagreement, NoJava, AssertionError) as why:
        console.print(f"[bold red]The demo failed:[/] {why}", highlight=False)
        sys.exit(1)
    stage.plot(outcome.cents, outcome.cold_cents)
    stage.numbers(outcome.lines)
    if chosen.plot:
        save_plot(chosen.plot, outcome.cents, outcome.cold_cents)
        console.print(f"\nplot saved to {chosen.plot}", highlight=False)
    verdict = "[bold green]All numbers agree.[/]" if outcome.agrees else "[bold red]The numbers do not agree.[/]"
    console.print(f"\n{verdict} [dim]{time.perf_counter() - began:.0f} s in total[/]", highlight=False)
    sys.exit(0 if outcome.agrees else 1)


if __name__ == "__main__":
    main()
