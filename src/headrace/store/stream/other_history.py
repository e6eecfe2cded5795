"""Compares the stream with cached batches that nobody can put back: others have written behind their place.

`log/other_history.py` does the same for the format `log`. The stream is the truth: what matters is which of our records
it does not have, and which of their offsets nobody has written at: only those are a gap.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.partition.entries import Entry
from headrace.store.partition.losses import Gap, uncovered
from headrace.store.redis.errors import StoreAway
from headrace.store.stream.ids import parse_id
from headrace.store.stream.records import StreamEntry, record_of
from headrace.wire.batch import iter_headers
from headrace.wire.records import Header, Record, decode_batch

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

_READ_COUNT = 16


class LostRecords(NamedTuple):
    """The records of cached batches that the stream does not have."""

    span: Gap
    """From the first of them to the last."""
    missing: list[Gap]
    """The offsets among them that nobody has records for."""


async def compare(partition: StreamPartition, lost: list[Entry]) -> LostRecords | None:
    """Reads the stream beside cached batches; None if it has them: another node was faster with the same."""
    whole = Gap(lost[0].base, lost[-1].end)
    ours, stored = await asyncio.to_thread(_contents, lost), list[tuple[int, int]]()
    async for offset, row in rows_between(partition, whole):
        stored.append((offset, offset + 1))
        if offset in ours and ours[offset] == _content(record_of(row, offset)):
            del ours[offset]
    # After the entries: what they lack is below it.
    start = int(await partition.link.call("HGET", partition.keys.meta, "start") or 0)
    gone = sorted(offset for offset in ours if offset >= start)
    if not gone:
        return None
    gaps = uncovered(stored, max(whole.start, start), whole.end)
    missing = [gap for gap in gaps if (at := bisect_left(gone, gap.end)) and gone[at - 1] >= gap.start]
    return LostRecords(Gap(gone[0], gone[-1] + 1), missing)


async def rows_between(partition: StreamPartition, offsets: Gap) -> AsyncIterator[tuple[int, StreamEntry]]:
    """The entries that the stream has within offsets, and some behind them."""
    timeline, at = partition.link.timeline, offsets.start
    while at < offsets.end and (rows := await partition.rows_from(at, _READ_COUNT, partition.link)):
        found = partition.ids.offsets_of(row[0] for row in rows)
        for one in zip(found, rows, strict=True):
            yield one
        at = max(at, found[-1]) + 1
    if partition.link.timeline != timeline:
        raise StoreAway("another server answers")


async def is_ours(partition: StreamPartition, entry: Entry, row: StreamEntry) -> bool:
    """Whether an entry of the stream is what a cached batch has there: others may have used the id since."""
    offset = partition.ids.offset_of(parse_id(row[0]))
    if not entry.token or not entry.base <= offset < entry.end:
        return True  # as far as the cache tells
    ours = await asyncio.to_thread(_contents, [entry])
    return ours.get(offset) == _content(record_of(row, offset))


def records_of(entry: Entry) -> list[Record]:
    """The records of cached batches."""
    return [
        record
        for pos, header in iter_headers(entry.data)
        for record in decode_batch(memoryview(entry.data)[pos : pos + header.length])
    ]


_Content = tuple[bytes | None, bytes | None, list[Header]]


def _contents(entries: list[Entry]) -> dict[int, _Content]:
    return {record.offset: _content(record) for entry in entries for record in records_of(entry)}


def _content(record: Record) -> _Content:
    return record.key, record.value, record.headers
