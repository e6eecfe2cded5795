"""Memory for entries that are read ahead, shared by all partitions: beyond the limit nothing is read ahead."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headrace.store.confidence import Look
from headrace.store.partition.entries import Entry
from headrace.store.partition.tail import size_of

_READERS_MAX: Final = 4_096
_IDLE_S: Final = 5.0
"""A reader that has not come for so long makes room for others."""


class LogReader:
    """Someone who reads a log in order: where the next request is expected, and the entries that it will want."""

    __slots__ = (
        "entries",
        "held_bytes",
        "is_following",
        "is_quick",
        "is_reading",
        "look",
        "offset",
        "seen_s",
        "waiters",
    )

    def __init__(self, offset: int, look: Look) -> None:
        self.offset = offset
        self.look = look
        """When the entries were asked for."""
        self.entries: list[Entry] = []
        self.held_bytes = 0
        self.is_following = False
        """Whether it came back where its last answer ended."""
        self.is_reading = False
        """Whether more entries are on their way."""
        self.is_quick = False
        """Whether a request came before its entries."""
        self.seen_s = 0.0
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def following(self) -> int:
        """The offset behind its entries."""
        return self.entries[-1].end if self.entries else self.offset

    @property
    def entries_bytes(self) -> int:
        return sum(map(size_of, self.entries))

    def end_reading(self) -> None:
        """Nothing is on its way any more."""
        self.is_reading = False
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()


class AheadRoom:
    """What is held for all readers, and who came least recently."""

    def __init__(self, limit_bytes: int, now_s: Callable[[], float]) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._now_s = now_s
        self._readers: OrderedDict[LogReader, Callable[[LogReader], None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._readers)

    def saw(self, reader: LogReader, drop: Callable[[LogReader], None]) -> None:
        """A reader has come; `drop` is called if it has to make room."""
        reader.seen_s = self._now_s()
        self._readers[reader] = drop
        self._readers.move_to_end(reader)
        if len(self._readers) > _READERS_MAX:
            self._drop_oldest()

    def leave(self, reader: LogReader) -> None:
        """A reader is forgotten."""
        if self._readers.pop(reader, None) is not None:
            self.hold(reader, 0)

    def hold(self, reader: LogReader, size_bytes: int) -> None:
        """Sets how much is held for a reader: a guess while it is read."""
        self.held_bytes += size_bytes - reader.held_bytes
        reader.held_bytes = size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much can be added, after idle readers have made room."""
        while self.held_bytes + size_bytes > self.limit_bytes:
            oldest = next(iter(self._readers), None)
            if oldest is None or self._now_s() - oldest.seen_s < _IDLE_S:
                return False
            self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        reader, drop = next(iter(self._readers.items()))
        drop(reader)
