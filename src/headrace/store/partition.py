"""One partition in format `log`: what this node knows of it, and reading it.

An entry of the stream holds whole batches; its id is the offset of its first record, so `<offset>-1` finds it and the
end of the log is the end of its last entry. What is known here (`end`, `log_start`, producers, index) is only as good
as the last sign of trouble: after a reconnect, a refusal or doubt, nothing is answered from memory until `confirm()`
has looked at the store again. Writing is in `writer.py`, making good what a store lost is in `recovery.py`, deleting
old records is in `trim.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import chain
from typing import TYPE_CHECKING

from headrace.store import recovery
from headrace.store.catalogue import Topic
from headrace.store.entries import LAST_SEQUENCE, NO_OFFSET, Entry, Taken, base_of, parse_entry, take
from headrace.store.errors import PartitionGone, StoreAway
from headrace.store.index import Index, Point
from headrace.store.losses import EpochStart, Gap
from headrace.store.producers import Producers
from headrace.store.tail import Tail
from headrace.store.writer import Writer
from headrace.wire import batch as batches
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import decode_batch

if TYPE_CHECKING:
    from headrace.store.store import Store

_WALK_BYTES = 4 << 20
_WALK_COUNT_FIRST = 16
_WALK_COUNT_MOST = 4096


class Partition:
    """What this node knows of one partition."""

    def __init__(self, store: Store, topic: Topic, number: int) -> None:
        self.store = store
        self.topic = topic
        self.number = number
        self.keys = topic.keys(store.keys, number)
        self.epochs = [EpochStart(0, 0)]
        self.gaps: list[Gap] = []
        self.floor = 0
        """The end is not below this: records up to here were given out, and lost."""
        self.tail = Tail(store.tails)
        self.forget()
        self.writer = Writer(self)
        self.watchers: set[Callable[[Partition], None]] = set()
        """Called after the end moved: long polls."""
        self.is_gone = False
        self.seen_timeline = store.link.timeline
        self._confirmed_generation = -1
        self._confirmed_term = -1
        self._doubts = 0
        self._confirming: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Drops what is known of the log, so that the next look reads it from its start."""
        self.is_loaded = False
        self.log_start = 0
        self.end = 0
        self.last_base = NO_OFFSET
        self.index = Index(self.store.options.index_interval_bytes)
        self.snapshot_size_bytes = 0
        self.producers = Producers()
        self.tail.clear()

    async def close(self) -> None:
        """Answers whoever still waits, and ends what goes on in the background."""
        if self._confirming is not None:
            self._confirming.cancel()
        await self.writer.close()

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.number}"

    @property
    def leader_epoch(self) -> int:
        """The epoch that is written into batches."""
        return self.epochs[-1].epoch

    # -- being sure ---------------------------------------------------------------------------------------------

    @property
    def is_in_step(self) -> bool:
        """Whether what is known was seen in the store on this connection, with no refusal since."""
        link = self.store.link
        return self._confirmed_generation == link.generation and link.is_up

    @property
    def is_confirmed(self) -> bool:
        """Whether what is known was seen in the store since the last sign of trouble, a lease in doubt included."""
        nodes = self.store.nodes
        return self.is_in_step and self._confirmed_term == nodes.term and nodes.lease_is_valid

    def doubt(self) -> None:
        """Notes a sign of trouble: the next answer asks the store first."""
        self._confirmed_generation = -1
        self._doubts += 1

    async def confirm(self) -> None:
        """Returns once what is known was seen in the store; everybody who waits shares one look."""
        while not self.is_confirmed:
            if self.is_gone:
                raise PartitionGone(repr(self))
            if self._confirming is None or self._confirming.done():
                self._confirming = asyncio.create_task(self._look(), name=f"confirm {self!r}")
                self._confirming.add_done_callback(_retrieve)
            await asyncio.shield(self._confirming)
            if self.is_in_step and not self.store.nodes.lease_is_valid:
                return  # a fresh look is as sure as it gets

    async def _look(self) -> None:
        link = self.store.link
        if not link.is_up:
            raise StoreAway
        generation, term, doubts = link.generation, self.store.nodes.term, self._doubts
        await recovery.look(self)
        if self._doubts == doubts:
            self._confirmed_generation, self._confirmed_term = generation, term

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

    async def save_start(self, offset: int) -> None:
        """Moves the log start up, in the store and then here."""
        reply = await self.store.scripts.run("save_start", [self.keys.meta, self.keys.log], [offset])
        self.check_there(reply)
        self.log_start = max(self.log_start, offset)

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

    def check_there(self, reply: int) -> None:
        """Raises PartitionGone if a script found that the stream is not there."""
        if reply < 0:
            self.doubt()
            raise PartitionGone(repr(self))

    def tell_watchers(self) -> None:
        """Wakes the long polls."""
        for watcher in list(self.watchers):
            watcher(self)

    # -- reading ------------------------------------------------------------------------------------------------

    def check_offset(self, offset: int) -> None:
        """Raises OFFSET_OUT_OF_RANGE; call it on a confirmed partition only."""
        if not self.log_start <= offset <= self.end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self!r} is outside {self.log_start} to {self.end}.",
            )

    def read_cached(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken | None:
        """Batches from the tail; None if the offset is before it."""
        if offset >= self.end:
            return Taken([], 0)
        if not self.tail.holds(offset):
            return None
        return take((entry.data for entry in self.tail.since(offset)), offset, max_bytes, at_least_one)

    async def read(self, offset: int, max_bytes: int, at_least_one: bool) -> Taken:
        """Batches from Redis: the entry that holds the offset, and those behind it up to about `max_bytes`."""
        if offset >= self.end:
            return Taken([], 0)
        after, end = f"({offset}-{LAST_SEQUENCE}", f"({self.end}-0"
        stop = self.index.after_bytes(offset, max_bytes)
        count = self.index.entries_in(offset, max_bytes)
        rows = await self.store.reads.pipeline(
            ("XREVRANGE", self.keys.log, f"{offset}-{LAST_SEQUENCE}", "-", "COUNT", 1),
            ("XRANGE", self.keys.log, after, f"({stop}-0" if stop else end, "COUNT", count),
        )
        found = [entry for row in chain(*rows) if (entry := parse_entry(row)) is not None and entry.end > offset]
        if not found and stop is not None:
            rows = await self.store.reads.call("XRANGE", self.keys.log, after, end, "COUNT", 1)
            found = [entry for row in rows if (entry := parse_entry(row)) is not None]
        if not found or found[0].base > offset:
            await self._check_hole(offset)
        return take((entry.data for entry in found), offset, max_bytes, at_least_one)

    async def _check_hole(self, offset: int) -> None:
        """Nothing is where the offset is: a hole, unless another node moved the log start or the stream is gone."""
        self.doubt()
        await self.confirm()
        self.check_offset(offset)

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
        if timestamp > self.index.max_timestamp:
            return None
        first, sure = self.index.around_time(timestamp)
        holding = await self.store.reads.call(
            "XREVRANGE", self.keys.log, f"{max(first, self.log_start)}-{LAST_SEQUENCE}", "-", "COUNT", 1
        )
        start = base_of(holding[0]) if holding else first
        # The record that made it sure may be deleted by now: then the search goes on behind it.
        stops = [self.end] if sure is None or sure <= start else [sure, self.end]
        for stop in stops:
            async for entries in self.walk(start, stop):
                for entry in entries:
                    if (found := _first_at(entry, timestamp, self.log_start)) is not None:
                        return found
            start = stop
        return None

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to the one asked for, and where it ends; (-1, -1) if unknown (KIP-320)."""
        if epoch > self.leader_epoch or epoch < self.epochs[0].epoch:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, self.end
        for this, following in zip(self.epochs, self.epochs[1:], strict=False):
            if this.epoch <= epoch < following.epoch:
                return this.epoch, following.start
        return -1, -1


def _first_at(entry: Entry, timestamp: int, log_start: int) -> tuple[int, int] | None:
    for pos, header in batches.iter_headers(entry.data):
        if header.max_timestamp < timestamp or header.next_offset <= log_start:
            continue
        try:
            records = decode_batch(memoryview(entry.data)[pos : pos + header.length])
        except batches.BatchError:
            # Records are not looked into when they are produced. Nonsense has no time, and hides nobody else's.
            continue
        for record in records:
            if record.timestamp >= timestamp and record.offset >= log_start:
                return record.offset, record.timestamp
    return None


def _retrieve(task: asyncio.Task[None]) -> None:
    """Takes note of a failure, so that one that nobody waits for any more is no unhandled one."""
    if not task.cancelled():
        task.exception()
