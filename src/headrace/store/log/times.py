"""Timestamps in the format `log`: of an entry, for the index, and of records in a span of the log, for lookups.

The broker corrects a header before it is stored, and records the time of the append with entries that have records
without a timestamp. Older entries have neither: there the records themselves are read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from headrace.store.partition.by_time import Found, Newest
from headrace.store.partition.entries import Entry
from headrace.store.partition.index import Stretch
from headrace.store.partition.time_steps import Walked
from headrace.wire.batch import MAX_UNPACKED_BYTES, BatchHeader, iter_headers
from headrace.wire.batch_errors import BatchError
from headrace.wire.records import NO_TIMESTAMP
from headrace.wire.schema import Buffer
from headrace.wire.skim import Steps, find_time, skim
from headrace.wire.times import newest_time

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

_MOST_BYTES = 16 << 20
"""Maximum decompressed size of a batch for a lookup by time."""


def newest_of(entry: Entry) -> int:
    """The newest time of an entry's records; `NO_TIMESTAMP` if none has one. May unpack them: see `is_slow`."""
    newest = NO_TIMESTAMP
    for pos, header in iter_headers(entry.data):
        said = header.max_timestamp
        if not entry.says_times(header):
            try:
                said = newest_time(memoryview(entry.data)[pos : pos + header.length], max_bytes=_MOST_BYTES)
            except BatchError:
                said = NO_TIMESTAMP
        newest = max(newest, said)
    return newest


def is_slow(entry: Entry) -> bool:
    """Whether `newest_of` has to unpack records."""
    return not all(entry.says_times(header) for header in entry.headers())


class LogTimes:
    """Looks into stretches of a partition."""

    def __init__(self, partition: LogPartition, walk: _Walk) -> None:
        self._partition = partition
        self._walk = walk

    async def first_in(self, stretch: Stretch, timestamp: int, walked: Walked) -> Found | None:
        find = partial(find_time, timestamp=timestamp, start=self._partition.local_start)
        async for found in self._look_into(stretch, timestamp, find, walked):
            return found
        return None

    async def newest_in(self, stretch: Stretch) -> Found | None:
        newest = Newest()
        find = partial(_find_newest, start=self._partition.local_start)
        async for found in self._look_into(stretch, NO_TIMESTAMP, find):
            newest.see(*found)
        return newest.found

    async def _look_into(
        self, stretch: Stretch, timestamp: int, find: _Find, walked: Walked | None = None
    ) -> AsyncIterator[Found]:
        """The results from each batch that may have a record at or after a time."""
        start, unpacking = self._partition.local_start, self._partition.context.unpacking
        async for entries in self._walk(stretch.first, stretch.stop):
            for entry in entries:
                headers = list(iter_headers(entry.data))
                if walked is not None:
                    walked.see(entry.base, _said_newest(entry, headers))
                for batch, header in _batches_as_late(entry, headers, timestamp, start):
                    try:
                        async with unpacking.records(batch, header, MAX_UNPACKED_BYTES) as data:
                            found = await unpacking.go_over(find(data, header))
                    except BatchError:
                        # Records are not looked into when they are produced. Nonsense has no time, and hides nobody
                        # else's.
                        continue
                    if found is not None:
                        yield found


_Walk = Callable[[int, int | None], AsyncIterator[list[Entry]]]
_Find = Callable[[Buffer, BatchHeader], Steps[Found | None]]


def _find_newest(data: Buffer, header: BatchHeader, start: int) -> Steps[Found | None]:
    """The first remaining record with the highest timestamp."""
    newest = Newest()
    for portion in skim(data, header):
        for delta, time, _ in portion:
            if header.base_offset + delta >= start:
                newest.see(header.base_offset + delta, time)
        yield
    return newest.found


_Headers = list[tuple[int, BatchHeader]]


def _said_newest(entry: Entry, headers: _Headers) -> int | None:
    """The newest time of an entry; None if its headers do not say."""
    if not all(entry.says_times(header) for _, header in headers):
        return None
    return max((header.max_timestamp for _, header in headers), default=NO_TIMESTAMP)


def _batches_as_late(
    entry: Entry, headers: _Headers, timestamp: int, start: int
) -> Iterator[tuple[memoryview, BatchHeader]]:
    for pos, header in headers:
        if header.next_offset > start and _may_be(entry, header, timestamp):
            yield memoryview(entry.data)[pos : pos + header.length], header


def _may_be(entry: Entry, header: BatchHeader, timestamp: int) -> bool:
    return header.max_timestamp >= timestamp or not entry.says_times(header)
