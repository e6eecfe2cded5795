"""Entries of a stream in format `log`: how they are written, read, and cut for a Fetch. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.wire import batch as batches
from headrace.wire.batch import BatchHeader
from headrace.wire.schema import Buffer

LAST_SEQUENCE = (1 << 64) - 1
"""The highest second half of a stream id."""

NO_OFFSET = -1


class Entry(NamedTuple):
    """An entry of the log: whole batches back to back, and the token of its writer."""

    base: int
    end: int
    data: bytes
    token: bytes

    def headers(self) -> list[BatchHeader]:
        """The headers of its batches."""
        return [header for _, header in batches.iter_headers(self.data)]


class Taken(NamedTuple):
    """Batches for a Fetch."""

    chunks: list[Buffer]
    size_bytes: int


def xadd(key: str, entry: Entry) -> list[Buffer]:
    """The append as it goes to Redis, packed by hand so that the batches are not copied once more."""
    name = key.encode()
    identity = b"%d-1" % entry.base
    head = b"*8\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$10\r\nNOMKSTREAM\r\n$%d\r\n%b\r\n$1\r\nb\r\n$%d\r\n" % (
        len(name), name, len(identity), identity, len(entry.data),
    )  # fmt: skip
    return [head, entry.data, b"\r\n$1\r\nw\r\n$%d\r\n%b\r\n" % (len(entry.token), entry.token)]


def base_of(row: Any) -> int:
    """The first half of an entry's id."""
    return int(row[0].split(b"-", 1)[0])


def parse_entry(row: Any) -> Entry | None:
    """An entry as XRANGE returns it; None for one that no broker wrote."""
    fields = row[1]
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    data = values.get(b"b")
    if data is None:
        return None
    try:
        return Entry(base_of(row), batches.end_offset(data), data, values.get(b"w", b""))
    except batches.BatchError:
        return None


def take(entries: Iterable[Buffer], offset: int, max_bytes: int, at_least_one: bool) -> Taken:
    """Whole batches from the one that holds `offset` on, at most `max_bytes`; the first one even if it is larger."""
    chunks: list[Buffer] = []
    size = 0
    for data in entries:
        pos = 0 if chunks else batches.slice_from(data, offset)
        if pos == len(data):
            continue
        cut = batches.fit(data, pos, max_bytes - size)
        if cut == pos and not chunks and at_least_one:
            cut = pos + batches.read_header(data, pos).length
        if cut == pos:
            break
        chunks.append(data if cut - pos == len(data) else memoryview(data)[pos:cut])
        size += cut - pos
        if cut < len(data):
            break
    return Taken(chunks, size)
