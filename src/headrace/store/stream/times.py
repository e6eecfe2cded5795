"""Timestamps in the format `stream`: of entries, for the index, and lookups by time.

With LogAppendTime a record's timestamp is that of its id, so lookups need only the ids. With CreateTime it is the
record's own, found through the index; a record without a timestamp has the age of its id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.partition import by_time
from headrace.store.partition.by_time import Found, Newest
from headrace.store.partition.index import Stretch
from headrace.store.partition.time_steps import STEP_ENTRIES, Walked
from headrace.store.stream.ids import StreamId, parse_id
from headrace.store.stream.records import StreamEntry, id_time, record_of
from headrace.wire.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from headrace.store.stream.partition import StreamPartition


class Span(NamedTuple):
    """The newest timestamp of some entries, and the time that retention uses."""

    newest: int
    age: int


def span_of(rows: Sequence[StreamEntry], append_time: bool) -> Span:
    """The span of consecutive entries."""
    last = id_time(parse_id(rows[-1][0]).ms)
    if append_time:
        return Span(last, last)
    newest, is_untimed = NO_TIMESTAMP, False
    for row in rows:
        time = record_of(row, 0).timestamp
        newest, is_untimed = max(newest, time), is_untimed or time < 0
    return Span(newest, max(newest, last) if is_untimed else newest)


async def find_time(partition: StreamPartition, timestamp: int) -> Found | None:
    """The first record at or after a time."""
    if not partition.policy.log_append_time:
        return await by_time.find_first(partition.index, partition.log_start, timestamp, _StreamTimes(partition))
    start = StreamId(max(timestamp, 0), 0)
    if start > partition.ids.last:
        return None
    key, last = partition.keys.log, str(partition.ids.last)
    rows = await partition.reads.call("XRANGE", key, str(start), last, "COUNT", 1)
    found = _at_its_id(partition, rows)
    if found is not None and found[0] < partition.log_start:  # it is about to be removed
        found = _at_its_id(partition, await partition.rows_from(partition.log_start, 1))
    return found


async def find_newest(partition: StreamPartition) -> Found | None:
    """The record with the largest time."""
    if not partition.policy.log_append_time:
        return await by_time.find_newest(partition.index, partition.log_start, _StreamTimes(partition))
    key, last = partition.keys.log, str(partition.ids.last)
    found = _at_its_id(partition, await partition.reads.call("XREVRANGE", key, last, "-", "COUNT", 1))
    return found if found is not None and found[0] >= partition.log_start else None


def _at_its_id(partition: StreamPartition, rows: Sequence[StreamEntry]) -> Found | None:
    if not rows:
        return None
    entry = parse_id(rows[0][0])
    return partition.ids.offset_of(entry), id_time(entry.ms)


class _StreamTimes:
    """Looks into stretches of a partition with CreateTime."""

    def __init__(self, partition: StreamPartition) -> None:
        self._partition = partition

    async def first_in(self, stretch: Stretch, timestamp: int, walked: Walked) -> Found | None:
        async for found in self._records(stretch):
            walked.see(*found)
            if found[1] >= timestamp:
                return found
        return None

    async def newest_in(self, stretch: Stretch) -> Found | None:
        newest = Newest()
        async for found in self._records(stretch):
            newest.see(*found)
        return newest.found

    async def _records(self, stretch: Stretch) -> AsyncIterator[Found]:
        """Offset and time of each record that is left."""
        partition = self._partition
        async for rows in self._portions(max(stretch.first, partition.log_start)):
            for row in rows:
                offset = partition.ids.offset_of(parse_id(row[0]))
                if stretch.stop is not None and offset >= stretch.stop:
                    return
                yield offset, record_of(row, offset).timestamp

    async def _portions(self, first: int) -> AsyncIterator[list[StreamEntry]]:
        """Entries from an offset on: most searches end in the first few."""
        partition = self._partition
        rows = await partition.rows_from(first, STEP_ENTRIES)
        if rows:
            yield rows
            async for more in partition.walk(f"({rows[-1][0].decode()}", str(partition.ids.last)):
                yield more
