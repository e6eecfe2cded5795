"""An alarm that rings at the earliest of the times it is set to.

Separate because sessions are renewed all the time: a later time leaves an earlier ring in place, since waking up once
for nothing is cheaper than setting a timer with every heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` with how late it is, in milliseconds."""

    def __init__(self, now_ms: Callable[[], int], ring: Callable[[int], None]) -> None:
        self._now_ms = now_ms
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def set(self, at_ms: int | None) -> None:
        """Rings at that time, or earlier if it was set to; never, if there is none."""
        if self._handle is not None and at_ms is not None and self._at_ms <= at_ms:
            return
        self.cancel()
        if at_ms is not None:
            delay_s = max(at_ms - self._now_ms(), 0) / 1000
            self._at_ms = at_ms
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._rings)

    def cancel(self) -> None:
        """Does not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rings(self) -> None:
        self._handle = None
        self._ring(self._now_ms() - self._at_ms)
