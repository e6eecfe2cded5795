"""The timers of a group: which there are, and who keeps them.

A decision says which timers to set or to cancel. The broker keeps them, adopts the changes together with the
new state, and sends `TimersFired` for what is due. A timer that fired stays armed until a decision about it was
adopted: if storing that decision fails, the timer is simply due again.

| kind    | one per           | runs while                                                     |
|---------|-------------------|----------------------------------------------------------------|
| SESSION | member            | the member is not parked; a new member's parked first join too |
| PENDING | handed-out id     | nobody joined with that id yet                                 |
| JOIN    | group             | PreparingRebalance (the initial delay, then the rebalance timeout) |
| SYNC    | group             | members of the new generation have not synced yet              |
"""

from collections.abc import Mapping
from enum import StrEnum


class TimerKind(StrEnum):
    """A kind of str, because a plain Enum is hashed by a Python function, and every heartbeat looks a timer up."""

    SESSION = "session"
    PENDING = "pending member id"
    JOIN = "join"
    SYNC = "sync"


TimerKey = tuple[TimerKind, str]
"""The kind, and a member id where there is one per member. A plain tuple: every request makes one."""

JOIN_TIMER: TimerKey = (TimerKind.JOIN, "")
SYNC_TIMER: TimerKey = (TimerKind.SYNC, "")

_SESSION, _PENDING = TimerKind.SESSION, TimerKind.PENDING

TimerChanges = Mapping[TimerKey, int | None]
"""Deadline in ms of the injected clock; None cancels. Cancelling what is not armed does nothing."""


def session_timer(member_id: str) -> TimerKey:
    return _SESSION, member_id


def pending_timer(member_id: str) -> TimerKey:
    return _PENDING, member_id
