"""The result of every format's parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

_NO_COLUMN = (UnicodeEncodeError, pa.ArrowException, OverflowError, ValueError)
"""Arrow's errors for a timestamp before the year 1, a decimal with too many digits, and the like."""


class Parsed(msgspec.Struct):
    """Columns of the parsed records (`rows` are their indexes), and the others with the reason."""

    columns: list[pa.Array] = []
    rows: list[int] = []
    rejected: list[tuple[int, str]] = []
    shown: list[dict[str, Any]] = []
    """Schemas of parsed records with new fields."""

    def reject(self, row: int, reason: str) -> None:
        self.rejected.append((row, reason))

    def convert(
        self,
        objects: Sequence[Any],
        columns_of: Callable[[Sequence[Any]], list[pa.Array]],
        reason_of: Callable[[Exception], str],
    ) -> None:
        """Converts the objects of `rows` to columns; values that Arrow cannot represent are rejected."""
        try:
            self.columns = columns_of(objects)
        except _NO_COLUMN:
            rows, kept = self.rows, []
            self.rows = []
            for at, found in zip(rows, objects, strict=True):
                try:
                    columns_of([found])
                except _NO_COLUMN as error:
                    self.reject(at, reason_of(error))
                else:
                    self.rows.append(at)
                    kept.append(found)
            self.columns = columns_of(kept)
            self.rejected.sort()


class Parser(Protocol):
    """Parses values to columns; a bad value does not affect others."""

    def parse(self, values: Sequence[bytes | None]) -> Parsed: ...
