"""How many records follow an offset in a stream, where offsets are times and do not count records.

The number is exact or unknown. Entries near either end are counted one by one; in between the index has counts, which
hold unless compaction or XDEL removed entries, as the stream's length shows. Redis's own counters (`entries-added`,
`lag`) know no more, and Redis before version 7 has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.store.stream.ids import parse_id

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition

_MOST_READ_BYTES = 2 << 20
"""Maximum bytes of entries counted one by one: a small part of a second."""
_MOST_NEWER = 1_000
_MOST_LOOKS = 3


async def records_from(partition: StreamPartition, offset: int) -> int | None:
    """The number of records at or above an offset; None if it is too much to count."""
    for _ in range(_MOST_LOOKS):
        await partition.confirm()
        counted, last, end = partition.index.entries, partition.ids.last, partition.end
        length, oldest, newer = await partition.link.transaction(
            ("XLEN", partition.keys.log),
            ("XRANGE", partition.keys.log, "-", "+", "COUNT", 1),
            ("XRANGE", partition.keys.log, last.after, "+", "COUNT", _MOST_NEWER + 1),
        )
        if len(newer) <= _MOST_NEWER:
            break
    else:
        return None  # Redis code writes faster than can be looked at
    stored = length - len(newer)
    if offset >= end or not stored:
        return 0
    first = partition.ids.offset_of(parse_id(oldest[0][0]))
    return stored if offset <= first else await _records_between(partition, offset, end, first, stored, counted)


async def _records_between(
    partition: StreamPartition, offset: int, end: int, first: int, stored: int, counted: int
) -> int | None:
    """The same for an offset behind the first entry; so many entries are stored up to the end, so many were counted."""
    index = partition.index
    if index.bytes_since(offset) <= _MOST_READ_BYTES:
        return await _count(partition, offset, end)
    if index.bytes_since(first) - index.bytes_since(offset) <= _MOST_READ_BYTES:
        return stored - await _count(partition, first, offset)
    following = index.following(first)
    point = index.floor(offset)
    if following is None or point is None:
        return None
    since_first = counted - following.entries + await _count(partition, first, following.offset)
    if since_first != stored:
        return None
    return counted - point.entries - await _count(partition, point.offset, offset)


async def _count(partition: StreamPartition, start: int, stop: int) -> int:
    """The entries from one offset on below another, by reading them."""
    begin = await partition.rows_from(start, 1)
    if not begin:
        return 0
    found = 0
    async for rows in partition.walk(begin[0][0].decode(), str(partition.ids.last)):
        offsets = partition.ids.offsets_of(row[0] for row in rows)
        found += sum(offset < stop for offset in offsets)
        if offsets[-1] >= stop:
            break
    return found
