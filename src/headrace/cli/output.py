"""Output of commands: tables for people, JSON for scripts.

On a terminal, rich fits tables to its width. A pipe or a file gets the same columns as plain text, never cut or
wrapped, so that awk and grep see whole lines. Text from clients is escaped: control characters in a name cannot move
the cursor.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

Cell = str | int | None
MISSING = "-"

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROL_BUT_LAYOUT = {code: shown for code, shown in _CONTROL.items() if code not in (ord("\n"), ord("\t"))}


class Column(msgspec.Struct, frozen=True):
    """A column's heading, whether it holds numbers, and whether its cells may wrap."""

    name: str
    number: bool = False
    folds: bool = True


def text(name: str) -> Column:
    """A column whose cells may wrap."""
    return Column(name)


def number(name: str) -> Column:
    """A column of numbers, aligned right."""
    return Column(name, number=True, folds=False)


def word(name: str) -> Column:
    """A column whose cells never wrap: ids that people copy."""
    return Column(name, folds=False)


def print_json(value: Any) -> None:
    """One value as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """A table with headings."""
    shown = [[_cell(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, shown)
    else:
        _print_plain(columns, shown)


def print_facts(title: str, facts: Sequence[tuple[str, Cell]]) -> None:
    """A title and, below it, names with their values; empty values are left out."""
    print(styled(one_line(title), bold=True))
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        if value is not None and value != "":
            print(f"  {styled(f'{name:<{width}}', dim=True)}  {_cell(value)}")


def styled(words: str, *, bold: bool = False, dim: bool = False, colour: str | None = None) -> str:
    """Styled text on a terminal that supports it, plain text elsewhere."""
    import click

    return click.style(words, bold=bold or None, dim=dim or None, fg=colour) if _shows_styles() else words


def one_line(words: str) -> str:
    """Text on one line, with control characters escaped."""
    return words.encode(errors="backslashreplace").decode().translate(_CONTROL)


def harmless(words: str) -> str:
    """Text with newlines and tabs kept and other control characters escaped."""
    return words.encode(errors="backslashreplace").decode().translate(_CONTROL_BUT_LAYOUT)


def count_of(amount: int, what: str) -> str:
    """`1 record`, `2 records`."""
    return f"{amount:,} {what}{'' if amount == 1 else 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7`."""
    parts = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(parts)


def _shows_styles() -> bool:
    import os

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(value: Cell) -> str:
    if value is None or value == "":
        return MISSING
    return f"{value:,}" if isinstance(value, int) else one_line(value)


def _print_plain(columns: Sequence[Column], rows: list[list[str]]) -> None:
    lines = [[column.name for column in columns], *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _print_rich(columns: Sequence[Column], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold dim")
    for column in columns:
        table.add_column(
            column.name,
            justify="right" if column.number else "left",
            no_wrap=not column.folds,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
