"""The armed timers of one thing. Plain data: the caller has the clock.

A decision says which timers to set or cancel. A timer that fired stays armed until a decision about it is adopted: if
storing that decision fails, the timer is simply due again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
