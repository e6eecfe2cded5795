"""Memory and time for a copy, without taking either from producers.

The copy has to fit below the mark at which produces are rejected. Memory above the mark is reserved for commits, groups
and leases; a small copy may borrow part of it, because a store filled by a compacted topic must be able to shrink.
"""

from __future__ import annotations

import asyncio

from headrace.clock import Clock
from headrace.store.redis.memory import Memory

_LOOK_EVERY_BYTES = 4 << 20
_BORROWED_SHARE = 4
"""Above the mark a step may take this part of what is free."""
_STEP_S = 0.001
_REST_FACTOR = 2.0
_LONGEST_REST_S = 0.004


class NoRoom(Exception):
    """The store has no room for the copy: the pass is given up."""


class Rooms:
    """How much one pass may still write."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._left_bytes = 0
        self.written_bytes = 0

    async def check(self, size_bytes: int) -> None:
        """Raises NoRoom if a copy of at most this size may not fit."""
        room = await self._memory.room_for_copy()
        if room is not None and size_bytes > room.below_mark_bytes and size_bytes > room.free_bytes // _BORROWED_SHARE:
            raise NoRoom(f"a copy may take {size_bytes >> 20} MiB, {room.below_mark_bytes >> 20} MiB are free for it")

    async def take(self, size_bytes: int) -> None:
        """Counts a step of the copy; now and then asks the server whether there still is room."""
        self._left_bytes -= size_bytes
        self.written_bytes += size_bytes
        if self._left_bytes <= 0:
            await self.check(_LOOK_EVERY_BYTES + size_bytes)
            self._left_bytes = _LOOK_EVERY_BYTES


class Rest:
    """Rests in proportion to the time that was spent, so that a pass takes a part of the machine only.

    All of a pass shares one: rests would count as work for another one. They are too short to be taken singly after
    small batches: a timer has a millisecond.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.monotonic_s()

    async def take(self) -> None:
        """Lets the others have their turn, after a step."""
        spent_s = self._clock.monotonic_s() - self._began_s
        if spent_s < _STEP_S:
            return
        await asyncio.sleep(min(spent_s * _REST_FACTOR, _LONGEST_REST_S))
        self._began_s = self._clock.monotonic_s()
