"""Cached batches, and the common parts of entries in both formats. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.wire import batch as batches
from headrace.wire.batch import BatchHeader
from headrace.wire.records import NO_TIMESTAMP
from headrace.wire.schema import Buffer

LAST_SEQUENCE = (1 << 64) - 1
"""The highest second half of a stream id."""

NO_OFFSET = -1


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry of the log: whole batches back to back, and the token of its writer."""

    base: int
    end: int
    data: bytes
    token: bytes
    append_time: int = NO_TIMESTAMP
    """When it was appended; known only where a batch has no time of its own."""

    def headers(self) -> list[BatchHeader]:
        """The headers of its batches."""
        return [header for _, header in batches.iter_headers(self.data)]

    def says_times(self, header: BatchHeader) -> bool:
        """Whether one of its headers is right about the times of its records: the broker once took any as it came."""
        return header.has_plausible_times or self.append_time != NO_TIMESTAMP


class Batches(msgspec.Struct, frozen=True, gc=False):
    """Batches for a Fetch."""

    chunks: list[Buffer]
    size_bytes: int


def base_of(row: Any) -> int:
    """The first half of an entry's id."""
    return int(row[0].split(b"-", 1)[0])


def entry_fields(row: Any) -> dict[bytes, bytes]:
    """An entry's fields."""
    fields = row[1]
    return dict(zip(fields[::2], fields[1::2], strict=False))


def take(entries: Iterable[Buffer], offset: int, max_bytes: int, at_least_one: bool) -> Batches:
    """Whole batches from the one with `offset`, up to `max_bytes`; with `at_least_one`, the first even if larger."""
    chunks: list[Buffer] = []
    size = 0
    for data in entries:
        if chunks and size + len(data) <= max_bytes:
            chunks.append(data)
            size += len(data)
            continue
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
    return Batches(chunks, size)


def before(taken: Batches, stop: int) -> Batches:
    """The batches before an offset, which must be the start of one."""
    if not taken.chunks or batches.end_offset(taken.chunks[-1]) <= stop:
        return taken
    chunks: list[Buffer] = []
    for chunk in taken.chunks:
        if batches.end_offset(chunk) <= stop:
            chunks.append(chunk)
            continue
        if batches.read_header(chunk).base_offset < stop:
            chunks.append(memoryview(chunk)[: batches.slice_from(chunk, stop)])
        break
    return Batches(chunks, sum(len(chunk) for chunk in chunks))
