"""What every format's parser gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

_NO_COLUMN = (UnicodeEncodeError, pa.ArrowException, OverflowError, ValueError)
"""Such as a moment before the year 1, or a decimal of more digits than its type."""


class Parsed(msgspec.Struct):
    """Columns for the records that parse (`rows` are their numbers), and the others with the reason."""

    columns: list[pa.Array] = []
    rows: list[int] = []
    rejected: list[tuple[int, str]] = []
    shown: list[dict[str, Any]] = []
    """Of records that parse and have fields which the schema lacks: what they show of themselves, as a schema."""

    def reject(self, row: int, reason: str) -> None:
        self.rejected.append((row, reason))

    def convert(
        self,
        objects: Sequence[Any],
        columns_of: Callable[[Sequence[Any]], list[pa.Array]],
        reason_of: Callable[[Exception], str],
    ) -> None:
        """Makes columns of the objects of `rows`; those that Python has and Arrow has not are rejected."""
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
    """Turns values into columns; what is wrong with one harms no other."""

    def parse(self, values: Sequence[bytes | None]) -> Parsed: ...
