"""Bounds the rate of cold records while a node serves other clients.

The rule: without Produce requests or Fetches of hot records, cold records come as fast as the lake gives them. With
them, a read begins only when the rate allows it, and asks for little: whatever the number of cold consumers, between
two of their answers the event loop is free for the others. Reads wait in order, and none is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLICE_BYTES = 1 << 20
"""Maximum size of a read while others are served: about what a batch from the lake has."""

_BURST_S = 0.05
"""After a pause so much may be read at once: the first records of a consumer are not held up."""
_LEAST_PAUSE_S = 0.001
_LOOK_EVERY_S = 0.1
_OTHERS_PER_S = 100
"""So many requests of others count as clients at work; consumers of idle topics ask twice a second."""


class ColdPace:
    """The rate, in bytes per second; 0: no limit."""

    def __init__(self, bytes_per_second: int, clock_s: Callable[[], float]) -> None:
        self.others: Callable[[], int] = lambda: 0
        """The number of requests so far that were not for cold records."""
        self._rate, self._clock_s = bytes_per_second, clock_s
        self._burst_bytes = max(_BURST_S * bytes_per_second, SLICE_BYTES)
        self._left_bytes = self._burst_bytes
        self._refilled_s = self._looked_s = clock_s()
        self._seen = 0
        self._is_busy = False
        self._next = asyncio.Lock()

    async def turn(self, wanted_bytes: int) -> int:
        """Waits until a read may begin; says how much it may ask for, and counts that."""
        async with self._next:
            pause_s = self.pause_s()
            while pause_s > 0:
                await asyncio.sleep(pause_s)
                pause_s = self.pause_s()
        granted = min(wanted_bytes, SLICE_BYTES) if self._is_busy else wanted_bytes
        self._left_bytes -= granted
        return granted

    def came(self, granted_bytes: int, size_bytes: int) -> None:
        """The read is over, and brought so much."""
        self._left_bytes += granted_bytes - size_bytes

    def pause_s(self) -> float:
        """How long the next read has to wait."""
        now_s = self._clock_s()
        self._look(now_s)
        self._left_bytes = min(self._burst_bytes, self._left_bytes + self._rate * (now_s - self._refilled_s))
        self._refilled_s = now_s
        if not self._is_busy:
            return 0.0
        if self._left_bytes >= 0:
            return 0.0
        # Not longer than until the next look: the others may have gone.
        return min(max(-self._left_bytes / self._rate, _LEAST_PAUSE_S), _LOOK_EVERY_S)

    def _look(self, now_s: float) -> None:
        if not self._rate or (passed_s := now_s - self._looked_s) < _LOOK_EVERY_S:
            return
        seen = self.others()
        was_busy, self._is_busy = self._is_busy, seen - self._seen >= _OTHERS_PER_S * passed_s
        if not was_busy:
            self._left_bytes = max(self._left_bytes, 0.0)  # what came without a limit is not paid back
        self._seen, self._looked_s = seen, now_s
