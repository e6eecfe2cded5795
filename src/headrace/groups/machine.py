"""The way in: one event, one decision.

Rules for whoever drives it:

1. One event of a group at a time. Store `decision.store` (or delete, on `tombstone`), then adopt
   `decision.group` and `decision.timers`, then send the replies. If storing fails, drop the decision and
   answer the request with `answers.refusal`; parked requests of the old group stay parked.
2. `now_ms` never goes back within a process and is comparable across restarts: the wall clock read once
   at the start, advanced by the monotonic clock. Deadlines and "Empty since when" are on it.
3. A Dead group is dropped once what is queued for it was answered.
"""

from collections.abc import Callable
from typing import Any

from headrace.groups import events
from headrace.groups.expiry import timer_fired
from headrace.groups.heartbeat import heartbeat
from headrace.groups.join import join
from headrace.groups.leave import leave
from headrace.groups.lifecycle import delete, load, resume, retention_check, unload
from headrace.groups.offsets import commit_check, offset_delete_check
from headrace.groups.scene import Decision, Ids, Scene
from headrace.groups.settings import GroupSettings
from headrace.groups.state import Group
from headrace.groups.sync import sync

_HANDLERS: dict[type, Callable[[Group | None, Any, Scene], Decision]] = {
    events.Join: join,
    events.Sync: sync,
    events.Heartbeat: heartbeat,
    events.Leave: leave,
    events.CommitCheck: commit_check,
    events.OffsetDeleteCheck: offset_delete_check,
    events.Delete: delete,
    events.TimerFired: timer_fired,
    events.RetentionCheck: retention_check,
    events.Load: load,
    events.Resume: resume,
    events.Unload: unload,
}


class Machine:
    """Decides for all groups of a broker. It keeps no state: a group's state is the caller's."""

    def __init__(self, settings: GroupSettings, ids: Ids) -> None:
        self._settings = settings
        self._ids = ids

    def decide(self, group: Group | None, event: events.Event, now_ms: int) -> Decision:
        """What `event` makes of `group`, None where there is no such group. `group` itself is not changed."""
        return _HANDLERS[type(event)](group, event, Scene(now_ms, self._settings, self._ids))
