"""Tables that read well on a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table with aligned columns."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
