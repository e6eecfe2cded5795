"""Reads the entries of a log in order, in steps bounded in entries and bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headrace.store.log.entries import parse_entry
from headrace.store.partition.entries import Entry
from headrace.store.redis.route import Route

PORTION_BYTES = 4 << 20
_COUNT_FIRST = 16
_COUNT_MOST = 4096


async def walk(
    reads: Route, key: str, first: int, stop: int | None = None, portion_bytes: int = PORTION_BYTES
) -> AsyncIterator[list[Entry]]:
    """All entries with a base of `first` or more (and below `stop`)."""
    if stop is not None and stop <= first:
        return
    start, count = f"{max(first, 0)}-0", _COUNT_FIRST
    upper = "+" if stop is None else f"({stop}-0"
    while True:
        rows = await reads.call("XRANGE", key, start, upper, "COUNT", count)
        found = [entry for row in rows if (entry := parse_entry(row)) is not None]
        if found:
            yield found
        if len(rows) < count:
            return
        size = sum(len(entry.data) for entry in found)
        count = max(1, min(_COUNT_MOST, count * portion_bytes // max(size, 1)))
        start = f"({rows[-1][0].decode()}"
