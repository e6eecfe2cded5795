"""Read-ahead for consumers that follow a log before its cached tail.

A consumer asks for more as soon as it has unpacked what it got. If it reads in order, the entries behind are read from
the store meanwhile, and its next Fetch is answered from memory (`broker/fetching/straight.py`). A single read at some
offset brings nothing but itself: only whoever comes back where the last answer ended is read ahead for, by one request,
or by two if it is quicker than the store.

Entries stay with the reader until an answer has taken them. They are valid until the next sign of trouble
(`store/confidence.py`), like everything in memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import hiredis

from headrace.store.confidence import Look
from headrace.store.log.entries import parse_entry
from headrace.store.partition.ahead_room import AheadRoom, LogReader
from headrace.store.partition.entries import Entry
from headrace.store.partition.tail import ENTRY_BYTES, size_of
from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.store.log.partition import LogPartition

_READ_BYTES_MAX: Final = 2 << 20
"""Even for a reader that takes more at once: the rest comes with its next request."""


class ReadAhead:
    """The readers of one partition."""

    __slots__ = ("_partition", "_room", "readers")

    def __init__(self, partition: LogPartition, room: AheadRoom) -> None:
        self._partition = partition
        self._room = room
        self.readers: dict[int, LogReader] = {}
        """By the offset at which each is expected."""

    def entries_at(self, offset: int) -> list[Entry] | None:
        """The entries from an offset on; None if the store has to be read."""
        reader = self.readers.get(offset)
        if reader is None:
            return None
        if reader.look != self._now():
            self._drop(reader)
            return None
        if not reader.entries and reader.is_reading:
            reader.is_quick = True
        return reader.entries or None

    async def arriving_at(self, offset: int) -> list[Entry] | None:
        """The same, after waiting for entries that are on their way."""
        reader = self.readers.get(offset)
        if reader is not None and reader.is_reading and not reader.entries:
            waiter = asyncio.get_running_loop().create_future()
            reader.waiters.append(waiter)
            await waiter
        return self.entries_at(offset)

    def found(self, offset: int, entries: list[Entry], look: Look) -> None:
        """Told of the entries that were read from the store for a request at an offset."""
        reader = self.readers.get(offset)
        if reader is None:
            if not self._room.limit_bytes:
                return
            reader = self.readers[offset] = LogReader(offset, look)
            self._room.saw(reader, self._drop)
        if not reader.entries and not reader.is_reading and self._room.has_room(sum(map(size_of, entries))):
            reader.entries, reader.look = entries, look
            self._room.hold(reader, reader.entries_bytes)

    def follow(self, offset: int, following: int, max_bytes: int) -> None:
        """A reader gets the records from `offset` to `following`, where it will come back."""
        reader, partition = self.readers[offset], self._partition
        if following in self.readers or following >= partition.end or partition.tail.holds(following):
            self._drop(reader)
            return
        del self.readers[offset]
        self.readers[following] = reader
        reader.offset = following
        reader.entries = [entry for entry in reader.entries if entry.end > following]
        self._room.saw(reader, self._drop)
        if reader.is_reading:
            return
        self._room.hold(reader, reader.entries_bytes)
        if reader.is_following:
            limit_bytes = min(max_bytes, _READ_BYTES_MAX) * (2 if reader.is_quick else 1)
            self._read_on(reader, limit_bytes - reader.held_bytes)
        reader.is_following = True

    def clear(self) -> None:
        """Forgets everything."""
        for reader in [*self.readers.values()]:
            self._drop(reader)

    def _drop(self, reader: LogReader) -> None:
        """Forgets a reader; a request that waits for its entries reads the store."""
        if self.readers.get(reader.offset) is reader:
            del self.readers[reader.offset]
        self._room.leave(reader)
        reader.end_reading()

    def _read_on(self, reader: LogReader, wanted_bytes: int) -> None:
        """Requests the entries behind those that a reader has."""
        partition, index = self._partition, self._partition.index
        start = reader.following
        if wanted_bytes <= 0 or start >= partition.end or partition.tail.holds(start):
            return
        if not self._room.has_room(wanted_bytes):
            return
        stop = index.after_bytes(start, wanted_bytes) or partition.end
        count = max(index.entries_in(start, wanted_bytes) - 1, 1)
        command = ("XRANGE", partition.keys.log, f"{start}-0", f"({stop}-0", "COUNT", count)

        def arrived(rows: Any, error: Exception | None) -> None:
            if self.readers.get(reader.offset) is reader:
                self._room.hold(reader, reader.entries_bytes)
                if error is None and reader.following == start:
                    self._take_in(reader, rows)
                reader.end_reading()

        look = self._now()
        try:
            partition.reads.send_then([hiredis.pack_command(cast("Any", command))], arrived)
        except StoreError:
            return
        if not reader.entries:
            reader.look = look
        reader.is_reading = True
        self._room.hold(reader, reader.held_bytes + wanted_bytes)

    def _take_in(self, reader: LogReader, rows: Any) -> None:
        """Adds the entries that follow each other: a reader that gets to a hole is told by the store."""
        room, entries, following = self._room, reader.entries, reader.following
        size_bytes, most_bytes = reader.held_bytes, room.limit_bytes - room.held_bytes + reader.held_bytes
        for row in rows:
            entry = parse_entry(row)
            if entry is None or entry.base != following:
                break
            entry_bytes = ENTRY_BYTES + len(entry.data)
            if size_bytes + entry_bytes > most_bytes:
                break  # they are larger than the index let expect
            entries.append(entry)
            size_bytes += entry_bytes
            following = entry.end
        room.hold(reader, size_bytes)

    def _now(self) -> Look:
        return self._partition.confidence.begin(self._partition.outlook.view)
