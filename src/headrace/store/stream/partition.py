"""One partition in the format `stream`: one entry per record, shared with Redis code.

Redis code may append at any time, so nothing about the end is answered from memory: each response begins by reading new
entries, in one round trip. Entries that were read have offsets (`stream/ids.py`), are counted in the index and kept in
the tail cache; nothing beyond them is returned. Long polls are woken by a blocked XREAD (`stream/watch.py`).

The log start is right after the last removed entry: a consumer at that position has missed nothing, although the first
remaining entry may be much later. Entries that Redis code trims leave a hole, and a reader inside it gets the next
entry.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import groupby, takewhile
from typing import Any

from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.appending import Pending
from headrace.store.partition.base import Partition
from headrace.store.partition.context import PartitionContext
from headrace.store.partition.entries import Batches, Entry, take
from headrace.store.partition.index import Index, Point
from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.redis.errors import PartitionGone, RedisError
from headrace.store.redis.route import Route
from headrace.store.stream import lag as stream_lag
from headrace.store.stream import look as stream_look
from headrace.store.stream import recovery as stream_recovery
from headrace.store.stream import times as stream_times
from headrace.store.stream import trim as stream_trim
from headrace.store.stream.batches import batches_of
from headrace.store.stream.compacting import compaction as stream_compaction
from headrace.store.stream.ids import NumberedEntries, StreamId, StreamIds, parse_id
from headrace.store.stream.producers import StreamProducers
from headrace.store.stream.records import id_time, is_foreign, packed_bytes
from headrace.store.stream.times import Span, span_of
from headrace.store.stream.tokens import NOT_SERVED, READ
from headrace.store.stream.writer import StreamWriter
from headrace.wire.batch import stamp, stamp_append_time

_READ_BYTES = 1 << 20
"""Maximum bytes of one read: entries are encoded one by one while others wait."""
_READ_COUNT_MOST = 8_192
_WALK_BYTES = 1 << 20
_WALK_COUNT_FIRST = 64
_ALL_BYTES = 1 << 62
_COUNTED_AT_ONCE = 256
"""Entries between two points of the index, at most."""


class StreamPartition(Partition):
    """One partition of format `stream`, as cached by this node."""

    writer: StreamWriter
    producers: StreamProducers

    def __init__(self, context: PartitionContext, topic: Topic, number: int) -> None:
        super().__init__(context, topic, number)
        self.forget()
        self.writer = StreamWriter(self)

    def forget(self) -> None:
        """Drops the cached state, so that the next load reads the stream from its start."""
        self.confidence.forget()
        self.log_start = 0
        self.end = 0
        self.ids = StreamIds(self.policy.sequence_bits)
        self.index = Index(self.options.index_interval_bytes)
        self.producers = StreamProducers(self.sequence_gaps)
        self.measured: stream_trim.Measured | None = None
        self.tail.clear()
        self.count_anew()

    # -- being sure ---------------------------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        return True

    async def confirm(self) -> None:
        """Returns after a read that began after this call: an earlier one may have missed recent entries."""
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

    async def remake_rest(self) -> None:
        await stream_recovery.remake_rest(self)

    async def go_behind_lost(self) -> None:
        await stream_look.go_behind_lost(self)

    def end_unseen(self) -> int:
        return self.now_ms() << self.ids.bits

    async def go_behind_last_id(self) -> None:
        """Skips ids that the server refuses although no entry has them."""
        await stream_look.go_behind_last_id(self)

    async def info(self) -> dict[bytes, Any]:
        """The server's information about the stream; PartitionGone if there is none."""
        try:
            reply = await self.link.call("XINFO", "STREAM", self.keys.log)
        except RedisError as error:
            if "no such key" in str(error):
                raise PartitionGone(repr(self)) from None
            raise
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def watch(self, watcher: Callable[[Partition], None]) -> None:
        super().watch(watcher)
        self.context.watch(self)

    # -- taking in entries --------------------------------------------------------------------------------------

    def count_own(self, pending: Pending, first: StreamId, base: int) -> None:
        """Moves the end behind a batch that we appended right behind it; its own bytes serve readers."""
        header, policy = pending.header, self.policy
        last_offset = base + header.count - 1
        is_natural = base == self.ids.natural(first) and not first.sequence >> self.ids.bits
        last = self.ids.natural_id(last_offset) if is_natural else first.plus(header.count - 1)
        stamp(pending.batch, 0, base, self.leader_epoch)
        token, newest, age = str(first).encode(), header.max_timestamp, header.max_timestamp
        if policy.log_append_time or newest < 0:
            age = id_time(last.ms)
        if policy.log_append_time:
            newest = age
            if last.ms == first.ms:
                stamp_append_time(pending.batch, 0, id_time(first.ms))
            else:
                token = NOT_SERVED + token
        self._count(base, first, len(pending.packed), Span(newest, age), header.count)
        self.tail.add(Entry(self.end, last_offset + 1, bytes(pending.batch), token))
        self.ids.accept(NumberedEntries([], [], last, last_offset))
        self.end = last_offset + 1

    def count_rows(self, rows: list[Any], offsets: list[int], *, cache: bool) -> None:
        """Counts entries that were read, in their order, behind what was counted before."""
        append_time = self.policy.log_append_time
        for at in range(0, len(rows), _COUNTED_AT_ONCE):
            some = rows[at : at + _COUNTED_AT_ONCE]
            size = sum(packed_bytes(row[1]) for row in some)
            self._count(offsets[at], parse_id(some[0][0]), size, span_of(some, append_time), len(some))
        if cache and self.end <= offsets[0]:
            self._cache_rows(rows, offsets)
        self.end = max(self.end, offsets[-1] + 1)

    def _cache_rows(self, rows: list[Any], offsets: list[int]) -> None:
        """Caches the batches that were read; those from which the entries cannot be rebuilt are kept apart."""
        for can_restore, group in groupby(range(len(rows)), lambda at: self._can_restore(rows[at], offsets[at])):
            places = list(group)
            span = slice(places[0], places[-1] + 1)
            built = batches_of(
                rows[span],
                offsets[span],
                leader_epoch=self.leader_epoch,
                max_bytes=_ALL_BYTES,
                at_least_one=True,
                append_time=self.policy.log_append_time,
                skips_foreign=self.policy.skips_foreign,
            )
            data, end = b"".join(batch.data for batch in built), offsets[places[-1]] + 1
            self.tail.add(Entry(self.end, end, data, READ if can_restore else b""))
            self.end = end

    def _can_restore(self, row: Any, offset: int) -> bool:
        """Whether an entry follows from its record and offset: it is no exception, and has no fields of its own."""
        entry = parse_id(row[0])
        return self.ids.natural(entry) == offset and not entry.sequence >> self.ids.bits and not is_foreign(row)

    def _count(self, base: int, first: StreamId, size_bytes: int, span: Span, entries: int) -> None:
        point = self.index.add_entry(base, size_bytes, span.newest, span.age, entries)
        if point is not None:
            self.store_point(point, first)

    def store_point(self, point: Point, entry: StreamId) -> None:
        """Writes a point of the index behind whatever is being written; a lost one only costs reading."""
        where = (self.keys.index, "NOMKSTREAM", f"{point.offset}-1")
        self.shard.link.post("XADD", *where, "p", point.value(), "i", str(entry), "s", point.stretch())

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

    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches | None:
        if offset >= self.end:
            return Batches([], 0)
        last = self.tail.last
        if offset < self._served_from or not self.tail.holds(offset) or last is None or last.end <= offset:
            return None
        if next(self.tail.since(offset)).token.startswith(NOT_SERVED):
            return None
        served = takewhile(lambda entry: not entry.token.startswith(NOT_SERVED), self.tail.since(offset))
        taken = take((entry.data for entry in served), offset, max_bytes, at_least_one)
        return taken if taken.chunks or not at_least_one else None

    def answered(self, offset: int, max_bytes: int, taken: Batches) -> None:
        """Nothing is read ahead: Redis code may remove entries at any time."""

    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches:
        budget = min(max_bytes, _READ_BYTES)
        policy, asked = self.policy, offset
        while offset < self.end:
            count = min(self.index.entries_in(max(offset, self.index.offsets[0]), budget), _READ_COUNT_MOST)
            table = self.ids.exceptions
            rows = await self.rows_from(offset, count)
            if table is not self.ids.exceptions:
                continue  # it was cut with the stream meanwhile, and these may be entries that it told the offsets of
            if asked < self.log_start:
                self.check_offset(asked)  # what it wanted was removed meanwhile
            if not rows:
                return await self.skip_to_end(offset)
            offsets = self.ids.offsets_of(row[0] for row in rows)
            built = batches_of(
                rows,
                offsets,
                leader_epoch=self.leader_epoch,
                max_bytes=budget,
                at_least_one=at_least_one,
                append_time=policy.log_append_time,
                skips_foreign=policy.skips_foreign,
            )
            if built or not policy.skips_foreign:
                return Batches([batch.data for batch in built], sum(len(batch.data) for batch in built))
            offset = offsets[-1] + 1
        return self.skip_to(offset) if offset > asked else Batches([], 0)  # all that is there is not shown

    async def has_records_from(self, offset: int) -> bool:
        return bool(await self.rows_from(offset, 1, self.link))

    async def rows_from(self, offset: int, count: int, link: Route | None = None) -> list[Any]:
        """Entries from an offset on, none behind the last known one."""
        reads, key, last = link or self.reads, self.keys.log, str(self.ids.last)
        run, start = self.ids.locate(offset)
        if run is not None:
            within = await reads.call("XRANGE", key, str(run), f"{run.ms}", "COUNT", 1)
            start = parse_id(within[0][0]) if within else start
        if start > self.ids.last:
            return []
        rows: list[Any] = await reads.call("XRANGE", key, str(start), last, "COUNT", count)
        return rows

    async def last_before(self, offset: int) -> StreamId | None:
        """The last entry below an offset."""
        last = self.ids.last  # what comes meanwhile is not below it
        found = await self.rows_from(offset, 1)
        bound = f"({found[0][0].decode()}" if found else str(last)
        rows = await self.reads.call("XREVRANGE", self.keys.log, bound, "-", "COUNT", 1)
        return parse_id(rows[0][0]) if rows else None

    async def walk(self, start: str, upper: str = "+") -> AsyncIterator[list[Any]]:
        """All entries from an id on, in bounded portions."""
        count = _WALK_COUNT_FIRST
        while True:
            rows = await self.reads.call("XRANGE", self.keys.log, start, upper, "COUNT", count)
            if rows:
                yield rows
            if len(rows) < count:
                return
            size = sum(packed_bytes(row[1]) for row in rows)
            count = max(1, min(_READ_COUNT_MOST, count * _WALK_BYTES // max(size, 1)))
            start = f"({rows[-1][0].decode()}"

    async def find_earliest(self) -> int:
        end = self.end  # as of the last id asked for: what comes meanwhile lies behind it, and is to be read
        rows = await self.link.call("XRANGE", self.keys.log, "-", str(self.ids.last), "COUNT", 1)
        first = self.ids.offset_of(parse_id(rows[0][0])) if rows else end
        return max(self.log_start, min(first, end))

    async def find_time(self, timestamp: int) -> tuple[int, int] | None:
        return await stream_times.find_time(self, timestamp)

    async def find_newest(self) -> tuple[int, int] | None:
        return await stream_times.find_newest(self)

    async def mirror_position(self, offset: int) -> tuple[str, int]:
        await self.confirm()
        info = await self.info()
        counted, end, last = self.index.entries, self.end, self.ids.last
        added = int(info.get(b"entries-added", counted))  # Redis before 7 does not count them
        before = await self.last_before(offset)
        if before is None or offset >= end:
            return (str(last), added) if before is not None else ("0-0", max(added - int(info[b"length"]), 0))
        behind, bound = 0, str(last)
        if (point := self.index.following(self.ids.offset_of(before))) is not None:
            rows = await self.rows_from(point.offset, 1)
            behind, bound = counted - point.entries, f"({rows[0][0].decode()}" if rows else bound
        async for rows in self.walk(f"({before}", bound):
            behind += len(rows)
        return str(before), max(added - behind, 0)

    # -- old records --------------------------------------------------------------------------------------------

    async def delete_before(self, offset: int) -> None:
        await stream_trim.delete_before(self, offset)

    async def enforce_retention(self, retention_ms: int, retention_bytes: int) -> None:
        await stream_trim.enforce_retention(self, retention_ms, retention_bytes)

    async def compact_if_due(self, policy: CompactionPolicy, unknown_ms: int) -> None:
        await stream_compaction.compact_if_due(self, policy)

    async def records_from(self, offset: int) -> int | None:
        return await stream_lag.records_from(self, offset)

    async def save_producers(self) -> None:
        """Their state is stored with each append; here those go that have been silent for long."""
        expired = self.producers.take_expired(self.now_ms() - self.options.producer_expiration_ms)
        if expired:
            await self.scripts.run("forget_producers", [self.keys.producers, self.keys.meta], [*expired])
            self.producers.outdate()

    @property
    def size_bytes(self) -> int:
        if not len(self.index) or self.log_start >= self.end:
            return 0
        return self.index.bytes_since(max(self.log_start, self.index.offsets[0]))
