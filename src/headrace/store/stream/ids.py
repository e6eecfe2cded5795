"""Offsets of a stream's entries: (milliseconds << bits) + sequence, and the exceptions to it. Pure.

Ids of a stream rise, so offsets made of them rise too, as long as every sequence fits its bits and every millisecond
the rest of 63. Where that does not hold (5,000 XADDs in one MULTI share a millisecond, a clock was set back, an id was
chosen by hand) an entry is exceptional: it gets the first free offset, and an exception says so: its id and its
offset. From there on, within that millisecond, offsets follow the sequence. An entry of a later millisecond whose
natural offset is taken already is exceptional again. The table of exceptions is the truth: both its columns rise, it is
stored before an offset that needs it is given out, and what it covers is read off it, so that all nodes agree, also
those that come after entries were removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from headrace.store.partition.entries import LAST_SEQUENCE

NATURAL_LIMIT = (1 << 63) - (1 << 40)
"""Offsets from here on are left to exceptional entries: there is always a next one."""
LAST_MS = (1 << 64) - 1
_LONGEST_STEP = 1 << 32
"""Within a millisecond. A wider one was made by hand, and would use up offsets for nothing."""


class StreamId(NamedTuple):
    """The id of an entry."""

    ms: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.sequence}"

    @property
    def next(self) -> StreamId:
        """The smallest id above this one."""
        return StreamId(self.ms, self.sequence + 1) if self.sequence < LAST_SEQUENCE else StreamId(self.ms + 1, 0)

    @property
    def after(self) -> str:
        """The start of the range after this id: Redis has nothing after the largest possible id."""
        return f"({self}" if self < (LAST_MS, LAST_SEQUENCE) else str(self)

    def plus(self, steps: int) -> StreamId:
        """So many sequences further on, in the same millisecond."""
        return StreamId(self.ms, self.sequence + steps)


START = StreamId(0, 0)
"""Below the id of every entry."""


def parse_id(raw: bytes | str) -> StreamId:
    """An id as Redis writes it."""
    ms, _, sequence = (raw.decode() if isinstance(raw, bytes) else raw).partition("-")
    return StreamId(int(ms), int(sequence or 0))


class Exceptional(NamedTuple):
    """From this entry on, within its millisecond, offsets follow the sequence."""

    id: StreamId
    offset: int


class NumberedEntries(NamedTuple):
    """The offsets of new entries, to be accepted once the exceptions are stored."""

    offsets: list[int]
    exceptions: list[Exceptional]
    last: StreamId
    last_offset: int


class Location(NamedTuple):
    """Where the first entry at or above an offset is: within `run` if anything is there, else from `start` on."""

    run: StreamId | None
    start: StreamId


class FreeIds(NamedTuple):
    """Where entries of ours may go."""

    first: StreamId
    offset: int
    is_natural: bool
    """Then the sequence carries into the next millisecond when its bits are used up."""


class StreamIds:
    """The ids of one stream: the exceptions, the last entry and its offset."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.exceptions: list[Exceptional] = []
        self._ids: list[StreamId] = []
        self._offsets: list[int] = []
        self.last = START
        self.last_offset = -1

    def natural(self, entry: StreamId) -> int:
        """The offset of an entry that is no exception."""
        return (entry.ms << self.bits) + entry.sequence

    def natural_id(self, offset: int) -> StreamId:
        """The entry that has an offset, unless there are exceptions."""
        return StreamId(offset >> self.bits, offset & (1 << self.bits) - 1)

    @property
    def is_exceptional(self) -> bool:
        """Whether the last entry's offset is another than its natural one, or its sequence does not fit."""
        last = self.last
        return self.last_offset >= 0 and (last.sequence >> self.bits > 0 or self.last_offset != self.natural(last))

    def load(self, exceptions: Iterable[Exceptional]) -> None:
        """Loads the stored table."""
        self.exceptions = list(exceptions)
        self._ids = [one.id for one in self.exceptions]
        self._offsets = [one.offset for one in self.exceptions]
        if self.exceptions and self.exceptions[-1].id > self.last:
            self.last, self.last_offset = self.exceptions[-1]

    def know(self, last: StreamId, last_offset: int) -> None:
        """Everything up to an entry has been looked at before."""
        if last > self.last:
            self.last, self.last_offset = last, max(last_offset, self.last_offset)

    def offset_of(self, entry: StreamId) -> int:
        """The offset of an entry that is not behind the last known one."""
        if self._ids:
            at = bisect_right(self._ids, entry) - 1
            if at >= 0 and self._ids[at].ms == entry.ms:
                return self._offsets[at] + entry.sequence - self._ids[at].sequence
        return (entry.ms << self.bits) + entry.sequence

    def offsets_of(self, ids: Iterable[bytes]) -> list[int]:
        """The offsets of entries, by their ids as Redis writes them."""
        if self._ids:
            return [self.offset_of(parse_id(raw)) for raw in ids]
        bits = self.bits
        split = (raw.split(b"-", 1) for raw in ids)
        return [(int(ms) << bits) + int(sequence) for ms, sequence in split]

    def read(self, ids: Iterable[bytes]) -> NumberedEntries:
        """Offsets of the entries that follow one another in the stream; those not behind the last keep theirs."""
        bits, last, last_offset = self.bits, self.last, self.last_offset
        run = self.exceptions[-1] if self.exceptions else None
        offsets: list[int] = []
        found: list[Exceptional] = []
        for raw in ids:
            ms_text, sequence_text = raw.split(b"-", 1)
            entry = StreamId(int(ms_text), int(sequence_text))
            if entry <= last:
                offsets.append(self.offset_of(entry))
                continue
            ms, sequence = entry
            offset = (ms << bits) + sequence
            if run is not None and run.id.ms == ms:
                offset = run.offset + sequence - run.id.sequence
                is_regular = offset - last_offset <= _LONGEST_STEP
            else:
                is_regular = sequence >> bits == 0 and last_offset < offset < NATURAL_LIMIT
            if not is_regular:
                earliest = ms << bits
                offset = max(last_offset + 1, earliest) if earliest < NATURAL_LIMIT else last_offset + 1
                run = Exceptional(entry, offset)
                found.append(run)
            offsets.append(offset)
            last, last_offset = entry, offset
        return NumberedEntries(offsets, found, last, last_offset)

    def accept(self, reading: NumberedEntries) -> None:
        """Adopts a reading once its exceptions are stored."""
        for one in reading.exceptions:
            self.exceptions.append(one)
            self._ids.append(one.id)
            self._offsets.append(one.offset)
        if reading.last > self.last:
            self.last, self.last_offset = reading.last, reading.last_offset

    def locate(self, offset: int) -> Location:
        """Where to look for the first entry at or above an offset."""
        natural = self.natural_id(max(offset, 0))
        at = bisect_right(self._offsets, offset)
        following = self._ids[at] if at < len(self._ids) else None
        if at == 0:
            return Location(None, natural if following is None else min(natural, following))
        before = self._ids[at - 1]
        sequence = before.sequence + offset - self._offsets[at - 1]
        run = StreamId(before.ms, sequence) if sequence <= LAST_SEQUENCE else None
        start = max(natural, StreamId(before.ms + 1, 0))
        return Location(run, start if following is None else min(start, following))

    def next_free(self, floor: int) -> FreeIds:
        """Where an entry of ours may go now: its offset is above the last one, and not below `floor`."""
        offset = max(self.last_offset + 1, floor, 1)  # no entry can be 0-0
        natural = self.natural_id(offset)
        follows_run = bool(self._ids) and self._ids[-1].ms == natural.ms
        if natural > self.last and offset < NATURAL_LIMIT and not follows_run:
            return FreeIds(natural, offset, True)
        step = offset - self.last_offset
        return FreeIds(StreamId(self.last.ms, self.last.sequence + step), offset, False)

    def forget_before(self, offset: int) -> StreamId | None:
        """A new table without unused exceptions, and the first one kept."""
        at = bisect_right(self._offsets, offset) - 1
        if at > 0:
            self.exceptions, self._ids, self._offsets = self.exceptions[at:], self._ids[at:], self._offsets[at:]
        return self._ids[0] if self._ids else None
