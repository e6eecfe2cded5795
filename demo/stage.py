"""The demo's output: numbered steps with their times, a table of counts, and a plot of the day."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

COLD, HOT = "steel_blue1", "orange1"
_PLOT_ROWS = 8
_PLOT_COLUMN = 2
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_VERDICTS = {None: "", True: "[green]agrees[/]", False: "[bold red]DOES NOT AGREE[/]"}


@dataclass(frozen=True)
class Line:
    """A row of the last table: who counted what, and whether it matches what was produced (that row: None)."""

    who: str
    orders: int
    cents: int
    agrees: bool | None


class Stage:
    """Prints the steps as they run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = 0

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A step: its title, the lines printed inside it, and how long it took."""
        self._step += 1
        began = time.perf_counter()
        with self._console.status("[dim]working[/]"):
            self._console.print(f"[bold cyan]{self._step}[/]  [bold]{title}[/]")
            yield
        self._console.print(f"   [dim]{time.perf_counter() - began:.1f} s[/]\n")

    def say(self, words: str) -> None:
        self._console.print(indent(words, "   "), highlight=False, markup=False)

    def command(self, words: str) -> None:
        self._console.print(f"   $ {words}", style="green", highlight=False, markup=False)

    def numbers(self, lines: Sequence[Line]) -> None:
        """The counts of all readers, and whether they agree."""
        table = Table(box=None, padding=(0, 2, 0, 1))
        for name in ("", "orders", "revenue", ""):
            table.add_column(name, justify="left" if not name else "right")
        for line in lines:
            table.add_row(line.who, f"{line.orders:,}", f"{line.cents / 100:,.2f}", _VERDICTS[line.agrees])
        self._console.print(Rule("the numbers", style="dim"))
        self._console.print(table, highlight=False)

    def plot(self, cents: Mapping[int, int], cold_cents: Mapping[int, int]) -> None:
        """One column per hour: records that are only in the table in one colour, records in Redis in another."""
        hours = range(min(cents), max(cents) + 1)
        eighth = max(cents.values()) / (_PLOT_ROWS * 8)
        self._console.print(Rule("revenue by hour (UTC)", style="dim"))
        for row in reversed(range(_PLOT_ROWS)):
            line = Text("   ")
            for hour in hours:
                height, cold = round(cents.get(hour, 0) / eighth), round(cold_cents.get(hour, 0) / eighth)
                # Two glyphs as well as two colours: the plot can be read without colours too.
                if cold == height or cold >= row * 8 + 4:
                    line.append(("░" if cold >= row * 8 + 4 else " ") * _PLOT_COLUMN + " ", COLD)
                else:
                    line.append(_EIGHTHS[max(0, min(8, height - row * 8))] * _PLOT_COLUMN + " ", HOT)
            self._console.print(line)
        labels = "".join(f"{hour % 24:02d}".ljust(_PLOT_COLUMN + 1) for hour in hours)
        self._console.print(f"   [dim]{labels}[/]", highlight=False)
        self._console.print(f"   [{COLD}]░░[/] only in the Delta table   [{HOT}]██[/] in Redis\n")


def save_plot(path: Path, cents: Mapping[int, int], cold_cents: Mapping[int, int]) -> None:
    """Saves the same plot as an image."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    hours = range(min(cents), max(cents) + 1)
    places = range(len(hours))
    cold = [cold_cents.get(hour, 0) / 100 for hour in hours]
    hot = [cents.get(hour, 0) / 100 - below for hour, below in zip(hours, cold, strict=True)]
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    axes.bar(places, cold, 0.85, color="#5fafff", label="only in the Delta table")
    axes.bar(places, hot, 0.85, bottom=cold, color="#ffaf00", label="in Redis")
    axes.set_xticks(places, [f"{hour % 24:02d}" for hour in hours])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("hour, UTC")
    axes.set_ylabel("revenue")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)
    plt.close(figure)
