"""One partition in format `stream`: one entry per record, shared with Redis code.

Redis code may append at any time, so nothing about the end is answered from memory: each answer begins with a look at
what came since the last one, which is one round trip. What was looked at has its offset (`stream_ids.py`), is counted
in the index, and is kept in the tail for readers; nothing behind it is given out. Long polls are woken by a blocked
XREAD (`stream_watch.py`).

The log start lies right behind the last entry that was removed: a consumer whose position is there has missed nothing,
although the first entry that is left may be much later. Entries that Redis code trims by itself leave a hole, and a
reader inside it gets the next entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from headrace.store import stream_look, stream_recovery, stream_trim
from headrace.store.appending import Pending
from headrace.store.catalogue import Topic
from headrace.store.entries import Entry, Taken, take
from headrace.store.errors import PartitionGone, RedisError
from headrace.store.formats import StreamSettings, stream_settings
from headrace.store.index import Index, Point
from headrace.store.partitions import AnyPartition
from headrace.store.redis import RedisLink
from headrace.store.stream_batches import batches_of
from headrace.store.stream_ids import Reading, StreamId, StreamIds, parse_id
from headrace.store.stream_producers import StreamProducers
from headrace.store.stream_records import entry_bytes, id_time, record_of
from headrace.store.stream_writer import StreamWriter
from headrace.wire.batch import stamp, stamp_append_time

if TYPE_CHECKING:
    from headrace.store.store import Store

_READ_BYTES = 1 << 20
"""Of one read: entries become batches one by one, and others wait meanwhile."""
_READ_COUNT_MOST = 8_192
_WALK_BYTES = 1 << 20
_WALK_COUNT_FIRST = 64
_ALL_BYTES = 1 << 62
_COUNTED_AT_ONCE = 256
"""Entries between two points of the index, at most."""
NOT_SERVED = b"*"
"""Begins the token of a cached batch that readers cannot have as it is: its ids span more than its one time says."""


class StreamPartition(AnyPartition):
    """What this node knows of one partition of format `stream`."""

    writer: StreamWriter
    producers: StreamProducers

    def __init__(self, store: Store, topic: Topic, number: int) -> None:
        super().__init__(store, topic, number)
        self._read_settings: tuple[Topic, StreamSettings] = (topic, stream_settings(topic.configs))
        self.forget()
        self.writer = StreamWriter(self)

    def forget(self) -> None:
        """Drops what is known of the stream, so that the next look reads it from its start."""
        self.is_loaded = False
        self.log_start = 0
        self.end = 0
        self.ids = StreamIds(self.settings.bits)
        self.index = Index(self.store.options.index_interval_bytes)
        self.producers = StreamProducers()
        self.measured: stream_trim.Measured | None = None
        self.tail.clear()
        self.count_anew()

    @property
    def settings(self) -> StreamSettings:
        """What the topic's configs say, as they are now."""
        topic = self.store.catalogue.by_uuid.get(self.topic.uuid, self.topic)
        if topic is not self._read_settings[0]:
            self._read_settings = (topic, stream_settings(topic.configs))
        return self._read_settings[1]

    # -- being sure ---------------------------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        return True

    async def confirm(self) -> None:
        """Returns after a look that began after this call: another one under way may have missed what came since."""
        if self._confirming is not None and not self._confirming.done():
            with contextlib.suppress(Exception):
                await asyncio.shield(self._confirming)
        while True:
            await self._share_look()
            if self.is_in_step:
                return

    async def load(self) -> None:
        await stream_look.load(self)

    async def recover(self) -> None:
        await stream_recovery.recover(self)

    async def catch_up(self) -> None:
        await stream_look.catch_up(self)

    async def go_behind_last_id(self) -> None:
        """Leaves ids behind that the server refuses although nothing has them."""
        await stream_look.go_behind_last_id(self)

    async def info(self) -> dict[bytes, Any]:
        """What the server says of the stream; PartitionGone if there is none."""
        try:
            reply = await self.store.link.call("XINFO", "STREAM", self.keys.log)
        except RedisError as error:
            if "no such key" in str(error):
                raise PartitionGone(repr(self)) from None
            raise
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def watch(self, watcher: Callable[[AnyPartition], None]) -> None:
        super().watch(watcher)
        self.store.stream_watch.add(self)

    # -- taking in entries --------------------------------------------------------------------------------------

    def count_own(self, pending: Pending, first: StreamId, base: int) -> None:
        """Moves the end behind a batch that we appended right behind it; its own bytes serve readers."""
        header, settings = pending.header, self.settings
        last_offset = base + header.count - 1
        is_natural = base == self.ids.natural(first) and not first.sequence >> self.ids.bits
        last = self.ids.natural_id(last_offset) if is_natural else first.plus(header.count - 1)
        stamp(pending.batch, 0, base, self.leader_epoch)
        token, max_timestamp = str(first).encode(), header.max_timestamp
        if settings.append_time:
            max_timestamp = id_time(last.ms)
            if last.ms == first.ms:
                stamp_append_time(pending.batch, 0, id_time(first.ms))
            else:
                token = NOT_SERVED + token
        self._count(base, first, len(pending.packed), max_timestamp, header.count)
        self.tail.add(Entry(self.end, last_offset + 1, bytes(pending.batch), token))
        self.ids.accept(Reading([], [], last, last_offset))
        self.end = last_offset + 1

    def count_rows(self, rows: list[Any], offsets: list[int], *, cache: bool) -> None:
        """Counts entries that were read, in their order, behind what was counted before."""
        append_time = self.settings.append_time
        for at in range(0, len(rows), _COUNTED_AT_ONCE):
            some = rows[at : at + _COUNTED_AT_ONCE]
            newest = (
                id_time(parse_id(some[-1][0]).ms) if append_time else max(record_of(row, 0).timestamp for row in some)
            )
            size = sum(entry_bytes(row[1]) for row in some)
            self._count(offsets[at], parse_id(some[0][0]), size, newest, len(some))
        end = offsets[-1] + 1
        if cache and self.end <= offsets[0]:
            built = batches_of(
                rows,
                offsets,
                leader_epoch=self.leader_epoch,
                max_bytes=_ALL_BYTES,
                at_least_one=True,
                append_time=append_time,
                skips_foreign=self.settings.skips_foreign,
            )
            data = b"".join(batch.data for batch in built)
            self.tail.add(Entry(self.end, end, data, b""))
        self.end = max(self.end, end)

    def _count(self, base: int, first: StreamId, size_bytes: int, max_timestamp: int, entries: int) -> None:
        point = self.index.add_entry(base, size_bytes, max_timestamp, entries)
        if point is not None:
            self.store_point(point, first)

    def store_point(self, point: Point, entry: StreamId) -> None:
        """Writes a point of the index behind whatever is being written; a lost one only costs reading."""
        where = (self.keys.index, "NOMKSTREAM", f"{point.offset}-1")
        self.store.post("XADD", *where, "p", point.value(), "i", str(entry))

    def count_anew(self) -> None:
        """How many of the counted entries are not in the stream any more has to be learnt again."""
        self._removed: int | None = None
        self._served_from = self.end

    def count_removed(self, removed: int, end: int) -> None:
        """Told how many of the entries that were counted up to an end are not in the stream.

        If they have become more, compaction or somebody else removed some. Which ones nobody says, so what is cached
        up to there serves nobody any more. It stays, for a store that goes back in time.
        """
        if self._removed is None:
            self._removed = removed
        elif removed > self._removed:
            self._removed, self._served_from = removed, end

    # -- reading ------------------------------------------------------------------------------------------------

    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken | None:
        if offset >= self.end:
            return Taken([], 0)
        if offset < self._served_from or not self.tail.holds(offset):
            return None
        entries = list[bytes]()
        for entry in self.tail.since(offset):
            if entry.token.startswith(NOT_SERVED):
                if not entries:
                    return None
                break
            entries.append(entry.data)
        taken = take(entries, offset, max_bytes, at_least_one)
        return taken if taken.chunks or not at_least_one else None

    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken:
        budget = min(max_bytes, _READ_BYTES)
        settings = self.settings
        while offset < self.end:
            count = min(self.index.entries_in(max(offset, self.index.offsets[0]), budget), _READ_COUNT_MOST)
            rows = await self.rows_from(offset, count)
            if not rows:
                break
            offsets = self.ids.offsets_of(row[0] for row in rows)
            built = batches_of(
                rows,
                offsets,
                leader_epoch=self.leader_epoch,
                max_bytes=budget,
                at_least_one=at_least_one,
                append_time=settings.append_time,
                skips_foreign=settings.skips_foreign,
            )
            if built or not settings.skips_foreign:
                return Taken([batch.data for batch in built], sum(len(batch.data) for batch in built))
            offset = offsets[-1] + 1
        return Taken([], 0)

    async def rows_from(self, offset: int, count: int, link: RedisLink | None = None) -> list[Any]:
        """Entries from an offset on, none behind the last known one."""
        reads, key, last = link or self.store.reads, self.keys.log, str(self.ids.last)
        run, start = self.ids.place(offset)
        if run is not None:
            within = await reads.call("XRANGE", key, str(run), f"{run.ms}", "COUNT", 1)
            start = parse_id(within[0][0]) if within else start
        if start > self.ids.last:
            return []
        rows: list[Any] = await reads.call("XRANGE", key, str(start), last, "COUNT", count)
        return rows

    async def last_before(self, offset: int) -> StreamId | None:
        """The last entry below an offset."""
        found = await self.rows_from(offset, 1)
        bound = f"({found[0][0].decode()}" if found else str(self.ids.last)
        rows = await self.store.reads.call("XREVRANGE", self.keys.log, bound, "-", "COUNT", 1)
        return parse_id(rows[0][0]) if rows else None

    async def walk(self, start: str, upper: str = "+") -> AsyncIterator[list[Any]]:
        """All entries from an id on, in bounded portions."""
        count = _WALK_COUNT_FIRST
        while True:
            rows = await self.store.reads.call("XRANGE", self.keys.log, start, upper, "COUNT", count)
            if rows:
                yield rows
            if len(rows) < count:
                return
            size = sum(entry_bytes(row[1]) for row in rows)
            count = max(1, min(_READ_COUNT_MOST, count * _WALK_BYTES // max(size, 1)))
            start = f"({rows[-1][0].decode()}"

    async def find_earliest(self) -> int:
        rows = await self.store.link.call("XRANGE", self.keys.log, "-", str(self.ids.last), "COUNT", 1)
        first = self.ids.offset_of(parse_id(rows[0][0])) if rows else self.end
        return max(self.log_start, min(first, self.end))

    async def find_time(self, timestamp: int) -> tuple[int, int] | None:
        if not self.settings.append_time:
            return await self._find_own_time(timestamp)
        start = str(StreamId(max(timestamp, 0), 0))
        if parse_id(start) > self.ids.last:
            return None
        rows = await self.store.reads.call("XRANGE", self.keys.log, start, str(self.ids.last), "COUNT", 1)
        return self._found(rows[0]) if rows else None

    def _found(self, row: Any) -> tuple[int, int]:
        entry = parse_id(row[0])
        offset = self.ids.offset_of(entry)
        return offset, id_time(entry.ms) if self.settings.append_time else record_of(row, offset).timestamp

    async def _find_own_time(self, timestamp: int) -> tuple[int, int] | None:
        if timestamp > self.index.max_timestamp:
            return None
        first, _ = self.index.around_time(timestamp)
        begin = await self.rows_from(max(first, self.log_start), 1)
        if not begin:
            return None
        async for rows in self.walk(begin[0][0].decode(), str(self.ids.last)):
            for row in rows:
                if record_of(row, 0).timestamp >= timestamp:
                    return self._found(row)
        return None

    async def find_newest(self) -> tuple[int, int] | None:
        if not self.settings.append_time:
            newest = self.index.max_timestamp
            return await self.find_time(newest) if newest >= 0 and self.log_start < self.end else None
        rows = await self.store.reads.call("XREVRANGE", self.keys.log, str(self.ids.last), "-", "COUNT", 1)
        return self._found(rows[0]) if rows else None

    async def mirror_position(self, offset: int) -> tuple[str, int]:
        await self.confirm()
        info, before = await asyncio.gather(self.info(), self.last_before(offset))
        added = int(info.get(b"entries-added", self.index.entries))  # Redis before 7 does not count them
        if before is None or offset >= self.end:
            return (str(self.ids.last), added) if before is not None else ("0-0", max(added - int(info[b"length"]), 0))
        point = self.index.floor(self.ids.offset_of(before))
        if point is None:
            return str(before), 0
        behind = self.index.entries - point.entries
        begin = await self.rows_from(point.offset, 1)
        async for rows in self.walk(begin[0][0].decode() if begin else str(before), str(before)):
            behind -= len(rows)
        return str(before), max(added - behind, 0)

    # -- old records --------------------------------------------------------------------------------------------

    async def delete_before(self, offset: int) -> None:
        await stream_trim.delete_before(self, offset)

    async def enforce_retention(self, retention_ms: int, retention_bytes: int) -> None:
        await stream_trim.enforce_retention(self, retention_ms, retention_bytes)

    async def save_producers(self) -> None:
        """Their state is stored with each append; here those go that have been silent for long."""
        expired = self.producers.take_expired(self.store.now_ms() - self.store.options.producer_expiration_ms)
        if expired:
            await self.store.scripts.run("forget_producers", [self.keys.producers], [*expired])

    @property
    def size_bytes(self) -> int:
        if not len(self.index) or self.log_start >= self.end:
            return 0
        return self.index.bytes_since(max(self.log_start, self.index.offsets[0]))
