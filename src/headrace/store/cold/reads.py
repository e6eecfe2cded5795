"""Cold records for fetches, read in the background so that hot reads never wait for them.

A fetch opens a reading; this fetch or a later one takes the records once they have arrived. The number of reads in
flight and of bytes waiting is bounded, and their rate while the node serves others (pace.py); records that nobody
fetches are dropped. After a failure the partition's reader gets one error, and the next attempt comes a moment later: a
consumer that retries at once must not keep two processes busy with an unavailable table.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.cold_log import ColdAway
from headrace.metrics.histogram import Histogram
from headrace.store.cold.pace import ColdPace
from headrace.store.partition.entries import Batches, take
from headrace.wire import batch as batches
from headrace.wire.cleaning import batch_of_nothing
from headrace.wire.errors import KafkaError
from headrace.wire.schema import Buffer

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_AT_ONCE = 8
_MOST_UNDER_WAY = 512
_MOST_BYTES = 8 << 20
"""Maximum size of one reading."""
_PARKED_BYTES = 64 << 20
_PARKED_S = 30.0
_PAUSE_S = 1.0

Key = tuple[bytes, int, int]
"""Topic id, partition, offset."""


class Reading:
    """Batches from one offset on: under way, there to be taken, or failed."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.entries: list[Buffer] | None = None
        self.error: KafkaError | None = None
        self.size_bytes = 0
        self.is_over = False
        """Whether it was taken, or given up: the next look may open another."""
        self._watchers: set[Callable[[], None]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take, or an error to tell."""
        return self.entries is not None or self.error is not None

    def watch(self, watcher: Callable[[], None]) -> None:
        """`watcher` is called when it is worth looking again, until `unwatch`."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.discard(watcher)

    def end(self) -> None:
        """Lets go of the records. Timers and waiting fetches may still know the reading, for up to half a minute."""
        self.entries, self.is_over = None, True
        self.tell_watchers()

    def tell_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher()


class BackgroundReads:
    """The readings of all partitions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readings: OrderedDict[Key, Reading] = OrderedDict()
        self._parked_bytes = 0
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.pace = ColdPace(store.options.cold_bytes_per_second, store.clock.monotonic_s)
        self.fetches = 0
        """Fetch requests for cold records."""
        self.succeeded = self.failed = 0
        self.seconds = Histogram()

    def find(self, partition: Partition, offset: int) -> Reading | None:
        """The reading from an offset on, if there is one."""
        return self._readings.get((partition.topic.uuid, partition.number, offset))

    def open(self, partition: Partition, offset: int, max_bytes: int) -> Reading:
        """The read in flight from an offset, or a new one; one that never completes if too many are in flight."""
        if (known := self.find(partition, offset)) is not None:
            return known
        reading = Reading(offset)
        if len(self._tasks) >= _MOST_UNDER_WAY:
            return reading
        key = (partition.topic.uuid, partition.number, offset)
        self._readings[key] = reading
        work = self._run(key, reading, partition, max(1, min(max_bytes, _MOST_BYTES)))
        task = asyncio.create_task(work, name=f"read cold {partition!r}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return reading

    def take(self, partition: Partition, reading: Reading, max_bytes: int, at_least_one: bool) -> Batches:
        """Takes the result of a reading, as much as there is room for, or raises its error; only once."""
        key = (partition.topic.uuid, partition.number, reading.offset)
        if reading.error is not None:
            error, reading.error = reading.error, None
            asyncio.get_running_loop().call_later(_PAUSE_S, self._drop, key, reading)
            raise error
        taken = take(reading.entries or (), reading.offset, max_bytes, at_least_one)
        if taken.size_bytes:
            self._drop(key, reading)
        return taken

    async def close(self) -> None:
        """Cancels everything in flight."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, key: Key, reading: Reading, partition: Partition, max_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with self._slots:
                entries = await self._read_in_turn(partition, reading.offset, max_bytes)
            self.succeeded += 1
            self.seconds.observe(loop.time() - began)
            if not entries:
                loop.call_later(_PAUSE_S, self._drop, key, reading)  # there may be some then
                return
            reading.entries, reading.size_bytes = entries, sum(map(len, entries))
            self._park(reading)
        except KafkaError as error:
            self.failed += 1
            reading.error = error
        except Exception:
            self.failed += 1
            log.exception("reading cold records failed", extra={"partition": repr(partition)})
            reading.error = ColdAway("reading cold records failed; the broker's log says why")
        loop.call_later(_PARKED_S, self._drop, key, reading)
        reading.tell_watchers()

    async def _read_in_turn(self, partition: Partition, offset: int, max_bytes: int) -> list[Buffer]:
        granted_bytes, size_bytes = await self.pace.turn(max_bytes), 0
        try:
            entries = await self.read(partition, offset, granted_bytes)
            size_bytes = sum(map(len, entries))
        finally:
            self.pace.came(granted_bytes, size_bytes)
        return entries

    async def read(self, partition: Partition, offset: int, max_bytes: int) -> list[Buffer]:
        """Batches from the cold log, or from Redis if only offsets without records remain before it."""
        while offset < partition.trimmed_to:
            if (behind := await self._skip_loss(partition, offset)) is not None:
                offset = behind
                continue
            found = await self._store.cold.read(partition.cold_name, offset, partition.trimmed_to, max_bytes)
            if found.batches:
                return [_with_epoch(partition, batch) for batch in found.batches]
            if found.next_offset <= offset:
                raise ColdAway(f"the lake has no records of {partition!r} at offset {offset}")
            offset = found.next_offset
        taken = partition.read_cached(offset, max_bytes, True)
        if taken is None:
            taken = await partition.read(offset, max_bytes, True)
        return taken.chunks

    async def _skip_loss(self, partition: Partition, offset: int) -> int | None:
        """Where records go on behind an offset that the store lost before the lake had it; None if it did not."""
        behind = next((gap.end for gap in partition.gaps if gap.start <= offset < gap.end), None)
        if behind is None:
            return None
        held = await self._store.cold.held(partition.cold_name)
        return None if held is not None and held.start <= offset < held.end else behind

    def _park(self, reading: Reading) -> None:
        """Makes room by dropping the oldest batches that were not taken."""
        self._parked_bytes += reading.size_bytes
        ready = [(key, one) for key, one in self._readings.items() if one.size_bytes and one is not reading]
        for key, one in ready:
            if self._parked_bytes <= _PARKED_BYTES:
                return
            self._drop(key, one)

    def _drop(self, key: Key, reading: Reading) -> None:
        if self._readings.get(key) is reading:
            del self._readings[key]
            self._parked_bytes -= reading.size_bytes
            reading.end()


def no_records(partition: Partition, offset: int, stop: int) -> Batches:
    """For a reader at cold offsets that have no records, and that may not read on in Redis: it gets to its end.

    Otherwise one that waits for the last stable offset would wait behind a marker for as long as a transaction is open.
    """
    end = min(stop, partition.trimmed_to)
    if offset >= end:
        return Batches([], 0)
    batch = _with_epoch(partition, batch_of_nothing(offset, end - 1))
    return Batches([batch], len(batch))


def _with_epoch(partition: Partition, batch: Buffer) -> memoryview:
    """A batch made from rows does not know which leader epoch wrote it; a consumer that validates its position does.

    The epoch is that of the last record: the position behind it must not lie behind the end of its epoch.
    """
    view = memoryview(batch)
    if view.readonly:
        view = memoryview(bytearray(batch))
    header = batches.read_header(view)
    batches.stamp(view, 0, header.base_offset, partition.epoch_at(header.last_offset))
    return view
