"""Entries of the format `log` in Redis, whole batches and the token of their writer: written, parsed, read in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from headrace.store.partition.entries import Entry, base_of, entry_fields
from headrace.store.redis.route import Route
from headrace.wire import batch as batches
from headrace.wire.records import NO_TIMESTAMP
from headrace.wire.schema import Buffer

PORTION_BYTES = 4 << 20
_USUAL_FIELDS = 4
_COUNT_FIRST = 16
_COUNT_MOST = 4096


def xadd(key: str, entry: Entry) -> list[Buffer]:
    """The append as it goes to Redis, packed by hand so that the batches are not copied once more."""
    name = key.encode()
    identity = b"%d-1" % entry.base
    timed = entry.append_time != NO_TIMESTAMP
    head = b"*%d\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$10\r\nNOMKSTREAM\r\n$%d\r\n%b\r\n$1\r\nb\r\n$%d\r\n" % (
        10 if timed else 8, len(name), name, len(identity), identity, len(entry.data),
    )  # fmt: skip
    tail = b"\r\n$1\r\nw\r\n$%d\r\n%b\r\n" % (len(entry.token), entry.token)
    if timed:
        time = b"%d" % entry.append_time
        tail += b"$1\r\nt\r\n$%d\r\n%b\r\n" % (len(time), time)
    return [head, entry.data, tail]


def parse_entry(row: Any) -> Entry | None:
    """An entry as XRANGE returns it; None if it was not written by a broker."""
    identity, fields = row
    try:
        if len(fields) == _USUAL_FIELDS and fields[0] == b"b" and fields[2] == b"w":  # as `xadd` writes nearly all
            data = fields[1]
            return Entry(int(identity.split(b"-", 1)[0]), batches.end_offset(data), data, fields[3])
        values = entry_fields(row)
        data = values.get(b"b")
        if data is None:
            return None
        end, append_time = batches.end_offset(data), int(values.get(b"t", NO_TIMESTAMP))
        return Entry(base_of(row), end, data, values.get(b"w", b""), append_time)
    except ValueError:
        return None


async def walk(
    reads: Route, key: str, first: int, stop: int | None = None, portion_bytes: int = PORTION_BYTES
) -> AsyncIterator[list[Entry]]:
    """All entries with a base of `first` or more (and below `stop`), in steps bounded in entries and bytes."""
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
