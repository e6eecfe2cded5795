"""The armed timers of one thing, and the alarm that rings for the earliest.

Timers are plain data: the caller has the clock. A decision says which timers to set or cancel. A timer that fired stays
armed until a decision about it is adopted: if storing that decision fails, the timer is simply due again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Deadlines by key."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, int] = {}
        self._wake_ms: int | None = None

    def adopt(self, changes: Mapping[Key, int | None]) -> int | None:
        """Sets and cancels timers; when to wake up (`wake_ms`). Cancelling an unarmed one does nothing."""
        for key, deadline_ms in changes.items():
            if deadline_ms is None:
                self._deadlines.pop(key, None)
                continue
            self._deadlines[key] = deadline_ms
            if self._wake_ms is None or deadline_ms < self._wake_ms:
                self._wake_ms = deadline_ms
        return self._wake_ms if self._deadlines else None

    def armed(self) -> Mapping[Key, int]:
        return self._deadlines

    def are_due(self, now_ms: int) -> bool:
        """Whether any is."""
        self._wake_ms = min(self._deadlines.values(), default=None)
        return self._wake_ms is not None and self._wake_ms <= now_ms

    def wake_ms(self) -> int | None:
        """When to ask `due` next: never after the earliest deadline, at times before it.

        A heartbeat moves a deadline later; looking for the new minimum each time would cost more than waking up once
        for nothing.
        """
        return self._wake_ms if self._deadlines else None

    def due(self, now_ms: int) -> list[Key]:
        """The due keys, earliest first. A key stays armed until a decision changes it."""
        late = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items() if deadline_ms <= now_ms]
        late.sort(key=lambda entry: entry[0])
        self._wake_ms = min(self._deadlines.values(), default=None)
        return [key for _, key in late]


class Alarm:
    """Calls `ring` with how late it is, in milliseconds, at the earliest of the times it is set to.

    Sessions are renewed all the time: a later time leaves an earlier ring in place, since waking up once for nothing is
    cheaper than setting a timer with every heartbeat.
    """

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
