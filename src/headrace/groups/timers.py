"""The timers of a group: which there are, and who keeps them.

A decision says which timers to set or to cancel. The broker keeps them in a `Timers` per group, adopts the
changes together with the new state, and sends `TimerFired` for what is due. A timer that fired stays armed
until a decision about it was adopted: if storing that decision fails, the timer is simply due again.

| kind    | one per           | runs while                                                     |
|---------|-------------------|----------------------------------------------------------------|
| SESSION | member            | the member is not parked; a new member's parked first join too |
| PENDING | handed-out id     | nobody joined with that id yet                                 |
| JOIN    | group             | PreparingRebalance (the initial delay, then the rebalance time-out) |
| SYNC    | group             | members of the new generation have not synced yet              |
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class TimerKind(StrEnum):
    """A kind of str, because a plain Enum is hashed by a Python function, and every heartbeat looks a timer up."""

    SESSION = "session"
    PENDING = "pending member id"
    JOIN = "join"
    SYNC = "sync"


class TimerKey(NamedTuple):
    kind: TimerKind
    member_id: str = ""


JOIN_TIMER = TimerKey(TimerKind.JOIN)
SYNC_TIMER = TimerKey(TimerKind.SYNC)

TimerChanges = Mapping[TimerKey, int | None]
"""Deadline in ms of the injected clock; None cancels. Cancelling what is not armed does nothing."""


def session_timer(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, member_id)


def pending_timer(member_id: str) -> TimerKey:
    return TimerKey(TimerKind.PENDING, member_id)


class Timers:
    """The armed timers of one group. Plain data: whoever has a clock asks what is due."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._wake_ms: int | None = None

    def adopt(self, changes: TimerChanges) -> None:
        for key, deadline_ms in changes.items():
            if deadline_ms is None:
                self._deadlines.pop(key, None)
                continue
            self._deadlines[key] = deadline_ms
            if self._wake_ms is None or deadline_ms < self._wake_ms:
                self._wake_ms = deadline_ms

    def armed(self) -> Mapping[TimerKey, int]:
        return self._deadlines

    def wake_ms(self) -> int | None:
        """When to ask `due` next: never after the earliest deadline, at times before it.

        A heartbeat moves a deadline later; looking for the new minimum each time would cost more than
        waking up once for nothing.
        """
        return self._wake_ms if self._deadlines else None

    def due(self, now_ms: int) -> list[TimerKey]:
        """What is due, earliest first. A key stays armed until a decision changes it."""
        late = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items() if deadline_ms <= now_ms]
        late.sort(key=lambda entry: entry[0])
        self._wake_ms = min(self._deadlines.values(), default=None)
        return [key for _, key in late]
