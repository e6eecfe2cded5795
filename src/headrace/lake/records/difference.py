"""Finds the first row that differs between a table and its topic. No I/O.

A table may have rows that its topic no longer has: compaction removed them, or the store lost them and the broker left
a hole. Conversely, a record that is only in the topic is missing from the table, and a row that differs is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

COMPARED = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")

Row = Mapping[str, Any]


def first_difference(
    live: Iterator[Row], cold: Iterator[Row], is_gone: Callable[[int], bool]
) -> tuple[int, str] | None:
    """Offset and kind of the first difference; both sides are ordered. `is_gone`: the topic no longer has an offset."""
    hot_row, cold_row = next(live, None), next(cold, None)
    while hot_row is not None or cold_row is not None:
        if hot_row is None or (cold_row is not None and cold_row["offset"] < hot_row["offset"]):
            assert cold_row is not None
            if not is_gone(cold_row["offset"]):
                return cold_row["offset"], "the table has this row twice or the topic does not have it"
            cold_row = next(cold, None)
        elif cold_row is None or hot_row["offset"] < cold_row["offset"]:
            return hot_row["offset"], "the topic has this record and the table does not"
        elif hot_row != cold_row:
            differing = ", ".join(name for name in COMPARED if hot_row[name] != cold_row[name])
            return hot_row["offset"], f"{differing} differ from the topic's"
        else:
            hot_row, cold_row = next(live, None), next(cold, None)
    return None
