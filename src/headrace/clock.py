"""Time, as everything here reads it: handed in where the rooms are wired together, so that a test can move it."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """The wall clock, as records carry it. It may be set back."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """The wall clock as it was at the start, advanced by the monotonic one: for deadlines across restarts."""
        return self._offset_ms + time.monotonic_ns() // 1_000_000

    monotonic_s: Callable[[], float] = staticmethod(time.monotonic)
    """For leases and pauses: it never goes back and means nothing outside this process."""
