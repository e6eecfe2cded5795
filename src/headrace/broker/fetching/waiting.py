"""A Fetch that waits for records: appends wake it, cold records that arrive, or the end of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.store.cold.reads import Reading
from headrace.store.partition.base import Partition
from headrace.store.partition.readable import Ends

if TYPE_CHECKING:
    from headrace.broker.fetching.fetch import Fetch, FetchedPart


class SeenEnds:
    """The ends of the partitions at the time of a pass."""

    __slots__ = ("are_held_back", "readable_bytes", "stable_ends")

    def __init__(self) -> None:
        self.readable_bytes: dict[Partition, int] = {}
        """How much had been appended to each."""
        self.stable_ends: dict[Partition, int] = {}
        """How far each was stable."""
        self.are_held_back: set[Partition] = set()
        """Those with records of open transactions: their bytes are counted already, and may become readable."""

    def note(self, partition: Partition, ends: Ends) -> None:
        """A partition that a pass looked at; the first look counts."""
        if partition not in self.readable_bytes:
            self.readable_bytes[partition] = ends.readable_bytes
            self.stable_ends[partition] = ends.stable_end
            if ends.stable_end < ends.high_watermark:
                self.are_held_back.add(partition)

    def note_each(self, found: Iterable[FetchedPart]) -> None:
        """The same for a pass in memory: every Fetch that waits makes one."""
        readable_bytes, stable_ends = self.readable_bytes, self.stable_ends
        for one in found:
            partition, ends = one.partition, one.ends
            if partition is not None and partition not in readable_bytes:
                readable_bytes[partition] = ends.readable_bytes
                stable_ends[partition] = ends.stable_end
                if ends.stable_end < ends.high_watermark:
                    self.are_held_back.add(partition)


class LongPoll:
    """From `begin` until `woken` is called, once, or `end`."""

    __slots__ = ("_fetch", "_is_waiting", "_missing_bytes", "_readings", "_seen", "_woken")

    def __init__(
        self,
        fetch: Fetch,
        seen: SeenEnds,
        missing_bytes: int,
        woken: Callable[[], None],
        readings: Sequence[Reading] = (),
    ) -> None:
        self._fetch = fetch
        self._seen = seen
        self._missing_bytes = missing_bytes
        self._woken = woken
        self._readings = readings
        self._is_waiting = False

    def begin(self, *, has_just_looked: bool = False) -> None:
        self._is_waiting = True
        self._fetch.call.connection.wait_timer.set(self._fetch.deadline, self._time_is_over)
        for partition in self._seen.readable_bytes:
            partition.watch(self._look)
        for reading in self._readings:
            reading.watch(self._wake)
        if has_just_looked:
            return  # in this turn: nothing can have come
        # What came since the pass looked wakes nobody any more.
        for partition in [*self._seen.readable_bytes]:
            self._look(partition)
        if any(reading.is_ready or reading.is_over for reading in self._readings):
            self._wake()

    def end(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        self._fetch.call.connection.wait_timer.clear()
        for partition in self._seen.readable_bytes:
            partition.unwatch(self._look)
        for reading in self._readings:
            reading.unwatch(self._wake)

    def _wake(self) -> None:
        if self._is_waiting:
            self.end()
            self._woken()

    def _look(self, partition: Partition) -> None:
        """Told that a partition's end moved, or that there is trouble with it."""
        seen, ends = self._seen, partition.ends
        stable_end, size_bytes = ends.stable_end, ends.readable_bytes
        if self._fetch.committed:
            if stable_end == seen.stable_ends[partition]:
                size_bytes = seen.readable_bytes[partition]  # what was appended cannot be read yet
            elif partition in seen.are_held_back:
                self._missing_bytes = 0  # how much it is, the next pass finds out
        seen.stable_ends[partition] = stable_end
        self._missing_bytes -= size_bytes - seen.readable_bytes[partition]
        seen.readable_bytes[partition] = size_bytes
        if self._missing_bytes <= 0 or partition.is_gone or not partition.is_confirmed:
            self._wake()

    def _time_is_over(self) -> None:
        if len(self._fetch.call.broker.store.nodes.live) > 1:
            # An announcement may have been lost: the last pass asks the store itself.
            for partition in self._seen.readable_bytes:
                partition.doubt()
        self._wake()
