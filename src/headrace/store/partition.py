"""One partition in format `log`: what this node knows of it, and reading it.

An entry of the stream holds whole batches; its id is the offset of its first record, so `<offset>-1` finds it and the
end of the log is the end of its last entry. Writing is in `writer.py`, making good what a store lost is in
`recovery.py`, deleting old records is in `trim.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from itertools import chain
from typing import TYPE_CHECKING

from headrace.store import recovery, trim
from headrace.store.catalogue import Topic
from headrace.store.entries import LAST_SEQUENCE, NO_OFFSET, Entry, Taken, base_of, parse_entry, take
from headrace.store.index import Index, Point
from headrace.store.lake_end import LakeEnd
from headrace.store.partitions import AnyPartition
from headrace.store.producers import Producers
from headrace.store.redis import Argument
from headrace.store.writer import Writer
from headrace.wire import batch as batches
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_WALK_BYTES = 4 << 20
_WALK_COUNT_FIRST = 16
_WALK_COUNT_MOST = 4096
_START_ID = "0-0"
_LAKE_END_WAIT_S = 1.0
"""How long a reader that is told of the end waits for the lake, if that may be ahead."""


class Partition(AnyPartition):
    """What this node knows of one partition of format `log`."""

    writer: Writer

    def __init__(self, store: Store, topic: Topic, number: int) -> None:
        super().__init__(store, topic, number)
        self.lake_end = LakeEnd(self)
        self.forget()
        self.writer = Writer(self)

    def forget(self) -> None:
        """Drops what is known of the log, so that the next look reads it from its start."""
        self.is_loaded = False
        self.log_start = 0
        self.trimmed_to = 0
        self.end = 0
        self.last_base = NO_OFFSET
        self.index = Index(self.store.options.index_interval_bytes)
        self.snapshot_size_bytes = 0
        self.producers = Producers()
        self.tail.clear()

    async def close(self) -> None:
        self.lake_end.close()
        await super().close()

    async def load(self) -> None:
        await recovery.load(self)

    async def recover(self) -> None:
        await recovery.recover(self)

    async def catch_up(self) -> None:
        await recovery.catch_up(self)

    @property
    def may_append(self) -> bool:
        return self.is_confirmed and not self.lake_end.is_open

    async def confirm_up_to(self, offset: int) -> None:
        await super().confirm_up_to(offset)
        if offset > self.end:
            await self.confirm_end()

    async def confirm_end(self) -> None:
        await self.confirm()
        await self.lake_end.wait(_LAKE_END_WAIT_S)

    # -- taking in entries --------------------------------------------------------------------------------------

    def adopt(self, entry: Entry) -> None:
        """Takes in an entry that was read: it is in the stream after the last one known."""
        max_timestamp, now_ms = -1, self.store.now_ms()
        for header in entry.headers():
            max_timestamp = max(max_timestamp, header.max_timestamp)
            self.producers.add(header, header.base_offset, now_ms)
        self.count(entry, max_timestamp)

    def count(self, entry: Entry, max_timestamp: int) -> None:
        """Moves the end behind an entry that is in the stream."""
        point = self.index.add_entry(entry.base, len(entry.data), max_timestamp)
        if point is not None:
            self.store_point(point)
        self.last_base = entry.base
        self.end = max(self.end, entry.end)
        self.tail.add(entry)
        if self.index.size_bytes - self.snapshot_size_bytes >= self.store.options.snapshot_interval_bytes:
            self.snapshot_size_bytes = self.index.size_bytes
            self.store.spawn(self._save_producers_in_step())

    def store_point(self, point: Point) -> None:
        """Writes a point of the index behind whatever is being written; a lost one only costs reading."""
        self.store.post("XADD", self.keys.index, "NOMKSTREAM", f"{point.offset}-1", "p", point.value())

    async def save_producers(self) -> None:
        """Stores a snapshot of the producers, so that the log before it need not be read again."""
        self.snapshot_size_bytes = self.index.size_bytes
        self.producers.expire(self.store.now_ms() - self.store.options.producer_expiration_ms)
        snapshot = self.producers.snapshot(self.end)
        reply = await self.store.scripts.run(
            "save_producers", [self.keys.producers, self.keys.log], [self.end, snapshot]
        )
        self.check_there(reply)

    async def _save_producers_in_step(self) -> None:
        if self.is_in_step:  # a store that went back in time must not learn of batches that it lost
            await self.save_producers()

    # -- reading ------------------------------------------------------------------------------------------------

    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken | None:
        """Batches from the tail; None if the offset is before it."""
        if offset >= self.end:
            return Taken([], 0)
        if not self.tail.holds(offset):
            return None
        return take((entry.data for entry in self.tail.since(offset)), offset, max_bytes, at_least_one)

    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken:
        """Batches from Redis: the entry that holds the offset, and as many behind it as are likely to fit."""
        if offset >= self.end:
            return Taken([], 0)
        after, end = f"({offset}-{LAST_SEQUENCE}", f"({self.end}-0"
        stop = self.index.after_bytes(offset, max_bytes)
        commands: list[tuple[Argument, ...]] = [
            ("XREVRANGE", self.keys.log, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1)
        ]
        # Not the one that would be cut: what does not fit is read again for the next fetch.
        if (behind := self.index.entries_in(offset, max_bytes) - 2) > 0:
            commands.append(("XRANGE", self.keys.log, after, f"({stop}-0" if stop else end, "COUNT", behind))
        rows = await self.store.reads.pipeline(*commands)
        found = [entry for row in chain(*rows) if (entry := parse_entry(row)) is not None and entry.end > offset]
        if not found:
            rows = await self.store.reads.call("XRANGE", self.keys.log, after, end, "COUNT", 1)
            found = [entry for row in rows if (entry := parse_entry(row)) is not None]
        if (not found or found[0].base > offset) and not await self._is_hole(offset):
            return Taken([], 0)
        if self.trimmed_to or self.is_tiered:
            found = _without_hole(found)
        return take((entry.data for entry in found), offset, max_bytes, at_least_one)

    async def _is_hole(self, offset: int) -> bool:
        """Nothing is where the offset is: a hole, unless another node made it cold, or deleted it, or all is gone."""
        self.doubt()
        await self.confirm()
        self.check_offset(offset)
        return not self.is_cold(offset)

    async def walk(self, first: int, stop: int | None = None) -> AsyncIterator[list[Entry]]:
        """All entries with a base of `first` or more (and below `stop`), in bounded portions."""
        start, count = f"{max(first, 0)}-0", _WALK_COUNT_FIRST
        upper = "+" if stop is None else f"({stop}-0"
        while True:
            rows = await self.store.reads.call("XRANGE", self.keys.log, start, upper, "COUNT", count)
            found = [entry for row in rows if (entry := parse_entry(row)) is not None]
            if found:
                yield found
            if len(rows) < count:
                return
            size = sum(len(entry.data) for entry in found)
            count = max(1, min(_WALK_COUNT_MOST, count * _WALK_BYTES // max(size, 1)))
            start = f"({rows[-1][0].decode()}"

    async def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after a time; None if there is none."""
        while True:
            trimmed_to = self.trimmed_to
            found = await self._find_time(timestamp)
            if self.trimmed_to == trimmed_to:
                return found  # else what was to be walked over may have become cold meanwhile

    async def _find_time(self, timestamp: int) -> tuple[int, int] | None:
        if self.log_start < self.trimmed_to and self.index.may_be_before(self.trimmed_to, timestamp):
            found = await self.store.cold.find_time(self.cold_name, timestamp, self.log_start, self.trimmed_to)
            if found is not None:
                return found
        return await self._find_local_time(timestamp)

    async def _find_local_time(self, timestamp: int) -> tuple[int, int] | None:
        if timestamp > self.index.max_timestamp:
            return None
        first, sure = self.index.around_time(timestamp)
        holding = await self.store.reads.call(
            "XREVRANGE", self.keys.log, f"{max(first, self.local_start)}-{LAST_SEQUENCE}", "-", "COUNT", 1
        )
        start = base_of(holding[0]) if holding else first
        # The record that made it sure may be deleted by now: then the search goes on behind it.
        stops = [self.end] if sure is None or sure <= start else [sure, self.end]
        for stop in stops:
            async for entries in self.walk(start, stop):
                for entry in entries:
                    if (found := _first_at(entry, timestamp, self.local_start)) is not None:
                        return found
            start = stop
        return None

    async def find_earliest(self) -> int:
        return self.log_start

    async def find_newest(self) -> tuple[int, int] | None:
        newest = self.index.max_timestamp
        found = await self.find_time(newest) if newest >= 0 and self.log_start < self.end else None
        if found is None and self.log_start < self.trimmed_to:
            found = await self.store.cold.find_newest(self.cold_name, self.log_start, self.trimmed_to)
        return found

    async def mirror_position(self, offset: int) -> tuple[str, int]:
        await self.confirm_up_to(offset)
        if offset >= self.end:
            return _identity(self.last_base), self.index.entries
        point = self.index.floor(offset)
        if point is None or offset == 0:  # nothing is left before it: what is left is yet to be read
            return _START_ID, self.index.point(0).entries if len(self.index) else 0
        base, count = NO_OFFSET, point.entries
        async for entries in self.walk(point.offset, offset):
            for entry in entries:
                if entry.end > offset:
                    break
                base, count = entry.base, count + 1
        if base == NO_OFFSET:
            rows = await self.store.reads.call("XREVRANGE", self.keys.log, f"{point.offset}-0", "-", "COUNT", 1)
            base = base_of(rows[0]) if rows else NO_OFFSET
        return _identity(base), count

    # -- old records --------------------------------------------------------------------------------------------

    async def delete_before(self, offset: int) -> None:
        await trim.delete_before(self, offset)

    async def enforce_retention(self, retention_ms: int, retention_bytes: int) -> None:
        await self.confirm()
        if self.log_start < self.trimmed_to:
            await self.save_start(self.trimmed_to)  # the topic is not tiered any more: cold records leave the log
        before = self.log_start
        start = trim.expired_start(self, self.store.now_ms(), retention_ms, retention_bytes)
        if start > before:
            await trim.delete_before(self, start)
            log.info(
                "old records removed",
                extra={"partition": repr(self), "from_offset": before, "to_offset": self.log_start},
            )


def _without_hole(entries: list[Entry]) -> list[Entry]:
    """Entries up to the first hole: a trim may have come between the commands. Who reads on there is told more."""
    holes = (at for at in range(1, len(entries)) if entries[at].base != entries[at - 1].end)
    return entries[: next(holes, len(entries))]


def _identity(base: int) -> str:
    return f"{base}-1" if base != NO_OFFSET else _START_ID


def _first_at(entry: Entry, timestamp: int, start: int) -> tuple[int, int] | None:
    for pos, header in batches.iter_headers(entry.data):
        if header.max_timestamp < timestamp or header.next_offset <= start:
            continue
        try:
            records = decode_batch(memoryview(entry.data)[pos : pos + header.length])
        except batches.BatchError:
            # Records are not looked into when they are produced. Nonsense has no time, and hides nobody else's.
            continue
        for record in records:
            if record.timestamp >= timestamp and record.offset >= start:
                return record.offset, record.timestamp
    return None
