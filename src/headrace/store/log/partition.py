"""One partition in the format `log`: its cached state, and reading.

An entry of the stream holds whole batches; its id is the offset of its first record, so `<offset>-1` finds it and the
end of the log is the end of its last entry. Writing is in `writer.py`, restoring what a store lost in `recovery.py`,
deleting old records in `trim.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from itertools import chain

from headrace.store.cluster.catalogue import Topic
from headrace.store.log import recovery, tiering, trim
from headrace.store.log.ahead import ReadAhead
from headrace.store.log.compacting.clean_log import CleanLog
from headrace.store.log.compacting.cleaner import Cleaner
from headrace.store.log.entries import parse_entry, walk
from headrace.store.log.lake_end import LakeEnd
from headrace.store.log.mirroring import MirrorPositions
from headrace.store.log.times import LogTimes, newest_of
from headrace.store.log.writer import LogWriter
from headrace.store.partition import by_time
from headrace.store.partition.base import Partition
from headrace.store.partition.context import PartitionContext
from headrace.store.partition.entries import LAST_SEQUENCE, NO_OFFSET, Batches, Entry, take
from headrace.store.partition.index import Index, Point
from headrace.store.partition.old_records import CompactionPolicy, Limits, Trouble
from headrace.store.partition.sequences.producers import Producers
from headrace.store.redis.link import Argument
from headrace.wire.batch import end_offset, iter_headers, read_header
from headrace.wire.control import read_marker
from headrace.wire.records import NO_TIMESTAMP

log = logging.getLogger(__name__)

_LAKE_END_WAIT_S = 1.0
"""How long a reader that is told of the end waits for the lake, if that may be ahead."""


class LogPartition(Partition):
    """One partition of format `log`, as cached by this node."""

    writer: LogWriter

    def __init__(self, context: PartitionContext, topic: Topic, number: int) -> None:
        super().__init__(context, topic, number)
        self.lake_end = LakeEnd(self)
        self.ahead = ReadAhead(self, context.ahead)
        self.clean = CleanLog(self)
        self.cleaner = Cleaner(self)
        self.mirrors = MirrorPositions(self)
        self.forget()
        self.writer = LogWriter(self)

    def forget(self) -> None:
        """Drops the cached state, so that the next load reads the log from its start."""
        self.confidence.forget()
        self.log_start = 0
        self.trimmed_to = 0
        self.end = 0
        self.last_base = NO_OFFSET
        self.read_end = 0
        """The end of what was read, and not written by this node since it opened the partition."""
        self.index = Index(self.options.index_interval_bytes)
        self.clean.forget()
        self.snapshot_size_bytes = 0
        self.producers = Producers(self.sequence_gaps)
        self.tail.clear()
        self.ahead.clear()

    async def close(self) -> None:
        self.lake_end.close()
        self.ahead.clear()
        await super().close()

    def vanish(self) -> None:
        super().vanish()
        self.ahead.clear()

    async def load(self) -> None:
        await recovery.load(self)

    async def recover(self) -> None:
        await recovery.recover(self)

    async def catch_up(self) -> None:
        await recovery.catch_up(self)

    async def remake_rest(self) -> None:
        await recovery.remake_rest(self)

    async def go_behind_lost(self) -> None:
        await recovery.go_behind_lost(self)

    def end_unseen(self) -> int:
        return recovery.end_without_trace(self)

    @property
    def is_settled(self) -> bool:
        return not self.lake_end.is_open

    def may_append(self) -> bool:
        return not self.lake_end.is_open and self.is_confirmed

    async def confirm_up_to(self, offset: int) -> None:
        await super().confirm_up_to(offset)
        if offset > self.end:
            await self.lake_end.wait(_LAKE_END_WAIT_S)

    async def confirm_end(self) -> None:
        await super().confirm_end()
        await self.lake_end.wait(_LAKE_END_WAIT_S)

    # -- taking in entries --------------------------------------------------------------------------------------

    def adopt(self, entry: Entry) -> None:
        """Takes in an entry that was read: it is in the stream after the last one known."""
        self.take_in_producers(entry)
        self.count(entry, newest_of(entry))

    def take_in_producers(self, entry: Entry, first: int = 0) -> None:
        """Counts the batches and markers of an entry, from an offset on."""
        now_ms = self.now_ms()
        for pos, header in iter_headers(entry.data):
            if header.base_offset < first:
                continue
            if not header.is_control:
                self.producers.add(header, header.base_offset, now_ms)
            elif header.producer_id >= 0 and (marker := read_marker(entry.data, pos)) is not None:
                self.producers.end(header, marker, header.base_offset, now_ms)

    def count(self, entry: Entry, newest: int) -> None:
        """Moves the end behind an entry that is in the stream; `newest` is the time of its newest record."""
        self.add_to_index(entry, newest)
        self.last_base = entry.base
        if entry.end > self.end:
            self.end = entry.end
        self.tail.add(entry)
        if self.index.size_bytes - self.snapshot_size_bytes >= self.options.snapshot_interval_bytes:
            self.snapshot_size_bytes = self.index.size_bytes
            self.context.spawn(self._save_producers_in_step())

    def add_to_index(self, entry: Entry, newest: int) -> None:
        """Counts an entry in the index; one without any time is as old as this moment, when it is first seen."""
        age = newest if newest > entry.append_time else entry.append_time
        if age == NO_TIMESTAMP:
            age = self.now_ms()
        if (point := self.index.add_entry(entry.base, len(entry.data), newest, age)) is not None:
            self.store_point(point)

    def store_point(self, point: Point) -> None:
        """Writes a point of the index behind whatever is being written; a lost one only costs reading."""
        where = (self.keys.index, "NOMKSTREAM", f"{point.offset}-1")
        self.slot.shard.link.post("XADD", *where, "p", point.value(), "s", point.stretch())

    async def save_producers(self) -> None:
        """Stores a snapshot of the producers, so that the log before it need not be read again.

        Not where the slot went meanwhile: that server may lack batches that it covers.
        """
        self.snapshot_size_bytes = self.index.size_bytes
        self.producers.expire(self.now_ms() - self.options.producer_expiration_ms)
        snapshot, aborted = self.producers.snapshot(self.end), self.producers.aborted.unstored()
        rows = [part for row in aborted for part in (row.marker, row.value())]
        keys = [self.keys.producers, self.keys.log, self.keys.aborted]
        reply = await self.scripts.run_here("save_producers", keys, [self.end, snapshot, *rows])
        self.check_there(reply)
        self.producers.aborted.stored(aborted)

    async def _save_producers_in_step(self) -> None:
        if self.is_in_step:  # a store that went back in time must not learn of batches that it lost
            await self.save_producers()

    # -- reading ------------------------------------------------------------------------------------------------

    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches | None:
        """Batches from the tail, or read ahead; None if Redis has to be read."""
        if offset >= self.end:
            return Batches([], 0)
        if offset < self.clean.end:
            return None
        taken = self.tail.read(offset, max_bytes, at_least_one)
        if taken is not None:
            return taken
        ahead = self.ahead.entries_at(offset)
        return None if ahead is None else take((entry.data for entry in ahead), offset, max_bytes, at_least_one)

    def answered(self, offset: int, max_bytes: int, taken: Batches) -> None:
        if offset in self.ahead.readers:
            self.ahead.follow(offset, end_offset(taken.chunks[-1]), max_bytes)

    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches:
        """Batches from Redis: the compacted part first, then the log behind it."""
        while True:
            clean_end = self.clean.end
            if offset >= clean_end:
                taken = await self._read_log(offset, max_bytes, at_least_one)
            elif (clean := await self.clean.read(offset, max_bytes, at_least_one)) is None:
                continue  # another copy has taken its place
            else:
                taken = clean.batches
                if clean.is_last:
                    taken = await self._and_behind(taken, clean_end, max_bytes, at_least_one)
            if taken.chunks or self.clean.end == clean_end:
                return taken

    async def _and_behind(self, taken: Batches, offset: int, max_bytes: int, at_least_one: bool) -> Batches:
        """The batches read so far, and as much of the following log as fits."""
        limit, at_least_one = max_bytes - taken.size_bytes, at_least_one and not taken.chunks
        behind = self.read_cached(offset, limit, at_least_one)
        if behind is None:
            behind = await self._read_log(offset, limit, at_least_one)
        if taken.chunks and behind.chunks and read_header(behind.chunks[0]).base_offset > offset:
            return taken  # between them is a hole (`_without_hole`)
        return Batches([*taken.chunks, *behind.chunks], taken.size_bytes + behind.size_bytes)

    async def _read_log(self, offset: int, max_bytes: int, at_least_one: bool) -> Batches:
        """The entry that holds the offset, and as many behind it as are likely to fit."""
        if (ahead := await self.ahead.arriving_at(offset)) is not None:
            return take((entry.data for entry in ahead), offset, max_bytes, at_least_one)
        if offset >= self.end:
            return Batches([], 0)
        look = self.confidence.begin(self.outlook.view)
        after, end = f"({offset}-{LAST_SEQUENCE}", f"({self.end}-0"
        stop = self.index.after_bytes(offset, max_bytes)
        commands: list[tuple[Argument, ...]] = [
            ("XREVRANGE", self.keys.log, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1)
        ]
        # Not the one that would be cut: what does not fit is read again for the next fetch.
        if (behind := self.index.entries_in(offset, max_bytes) - 2) > 0:
            commands.append(("XRANGE", self.keys.log, after, f"({stop}-0" if stop else end, "COUNT", behind))
        rows = await self.reads.pipeline(*commands)
        found = [entry for row in chain(*rows) if (entry := parse_entry(row)) is not None and entry.end > offset]
        if not found:
            rows = await self.reads.call("XRANGE", self.keys.log, after, end, "COUNT", 1)
            found = [entry for row in rows if (entry := parse_entry(row)) is not None]
        if (not found or found[0].base > offset) and not await self._is_hole(offset):
            return Batches([], 0)
        if not found:
            return await self.skip_to_end(offset)
        found = _without_hole(found)
        if found[0].base <= offset:
            self.ahead.found(offset, found, look)
        return take((entry.data for entry in found), offset, max_bytes, at_least_one)

    async def _is_hole(self, offset: int) -> bool:
        """No entry holds the offset: a hole, unless it was compacted, tiered or deleted, or the log is gone."""
        self.doubt()
        await self.confirm()
        self.check_offset(offset)
        return not self.is_cold(offset) and offset >= self.clean.end

    async def has_records_from(self, offset: int) -> bool:
        return bool(await self.link.call("XRANGE", self.keys.log, f"{offset}-0", "+", "COUNT", 1))

    async def walk(self, first: int, stop: int | None = None) -> AsyncIterator[list[Entry]]:
        """All entries of the log itself with a base of `first` or more (and below `stop`), in bounded portions."""
        async for entries in walk(self.reads, self.keys.log, first, stop):
            yield entries

    async def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after a time; None if there is none."""
        while True:
            trimmed_to = self.trimmed_to
            found = await self._find_time(timestamp)
            if self.trimmed_to == trimmed_to and await self._is_walked():
                return found  # else what was to be walked over may have become cold meanwhile

    async def _find_time(self, timestamp: int) -> tuple[int, int] | None:
        if self.log_start < self.trimmed_to and self.index.may_be_before(self.trimmed_to, timestamp):
            found = await self.cold.find_time(self.cold_name, timestamp, self.log_start, self.trimmed_to)
            if found is not None:
                return found
        if self.local_start < self.clean.end:
            times = LogTimes(self, self.clean.walk)
            if (found := await by_time.find_first(self.clean.index, self.local_start, timestamp, times)) is not None:
                return found
        start = max(self.local_start, self.clean.end)
        return await by_time.find_first(self.index, start, timestamp, LogTimes(self, self.walk))

    async def _is_walked(self) -> bool:
        """Whether the searched entries stayed in place until the end of the search: not if they were compacted."""
        return (not self.policy.compacts and not self.clean.end) or await self.clean.is_there()

    async def find_earliest(self) -> int:
        return self.log_start

    async def find_newest(self) -> tuple[int, int] | None:
        while True:
            trimmed_to = self.trimmed_to
            found = await self._find_newest()
            if self.trimmed_to == trimmed_to and await self._is_walked():
                return found

    async def _find_newest(self) -> tuple[int, int] | None:
        local = await self._find_newest_local()
        if self.log_start < self.trimmed_to and (local is None or self.index.may_be_before(self.trimmed_to, local[1])):
            cold = await self.cold.find_newest(self.cold_name, self.log_start, self.trimmed_to)
            if cold is not None and cold[1] >= (local[1] if local else NO_TIMESTAMP):
                return cold
        return local

    async def _find_newest_local(self) -> tuple[int, int] | None:
        start = max(self.local_start, self.clean.end)
        newest = await by_time.find_newest(self.index, start, LogTimes(self, self.walk))
        if self.local_start < self.clean.end:
            times = LogTimes(self, self.clean.walk)
            clean = await by_time.find_newest(self.clean.index, self.local_start, times)
            if clean is not None and clean[1] >= (newest[1] if newest else NO_TIMESTAMP):
                return clean
        return newest

    async def mirror_position(self, offset: int) -> tuple[str, int]:
        return await self.mirrors.find(offset)

    # -- old records --------------------------------------------------------------------------------------------

    async def delete_before(self, offset: int) -> None:
        await trim.delete_before(self, offset)

    async def enforce_retention(self, retention_ms: int, retention_bytes: int) -> None:
        await self.confirm()
        if self.log_start < self.trimmed_to:
            await self.save_start(self.trimmed_to)  # the topic is not tiered any more: cold records leave the log
        before = self.log_start
        start = trim.expired_start(self, self.now_ms(), retention_ms, retention_bytes)
        if start > before:
            await trim.delete_before(self, start)
            log.info(
                "old records removed",
                extra={"partition": repr(self), "from_offset": before, "to_offset": self.log_start},
            )

    async def compact_if_due(self, policy: CompactionPolicy, unknown_ms: int) -> None:
        await self.cleaner.run_if_due(policy, unknown_ms + self.options.timeout_ms)

    @property
    def size_bytes(self) -> int:
        log_start = max(self.local_start, self.clean.end)
        log_bytes = self.index.bytes_since(log_start) if log_start < self.end else 0
        return log_bytes + self.clean.size_since(self.local_start)

    async def leave_to_lake(self, limits: Limits) -> Trouble | None:
        return await tiering.enforce(self, limits)


def _without_hole(entries: list[Entry]) -> list[Entry]:
    """Entries up to the first hole: a trim may have come between the commands. Who reads on there is told more.

    Or what was there is lost, perhaps with the markers of aborted transactions. A client that is told of one and gets
    no marker skips all that the producer wrote behind it, to the end of the answer.
    """
    holes = (at for at in range(1, len(entries)) if entries[at].base != entries[at - 1].end)
    return entries[: next(holes, len(entries))]
