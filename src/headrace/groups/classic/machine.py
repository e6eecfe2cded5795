"""The way in: one event, one decision.

Rules for whoever drives it:

1. One event of a group at a time. Claim `decision.claim`, store `decision.store` and `decision.rows` (or
   delete, on `tombstone`), then adopt `decision.state` and `decision.timers`, then send the replies. If
   storing fails, drop the decision and answer the request with `answers.refusal`; parked requests of the old
   group stay parked.
2. `now_ms` never goes back within a process and is comparable across restarts: the wall clock read once
   at the start, advanced by the monotonic clock. Deadlines and "Empty since when" are on it.
3. A Dead group is dropped once what is queued for it was answered.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.groups.classic import events
from headrace.groups.classic.expiry import timers_fired
from headrace.groups.classic.heartbeat import heartbeat
from headrace.groups.classic.join import join
from headrace.groups.classic.leave import leave
from headrace.groups.classic.lifecycle import delete, load, resume, retention_check, unload
from headrace.groups.classic.offsets import commit, offset_delete, transaction_ended, txn_commit
from headrace.groups.classic.scene import ClassicDecision, Ids, Scene
from headrace.groups.classic.snapshot import from_fields
from headrace.groups.classic.state import Group
from headrace.groups.classic.sync import sync
from headrace.groups.classic.timers import TimerKey
from headrace.groups.settings import GroupSettings

_HANDLERS: dict[type, Callable[[Group | None, Any, Scene], ClassicDecision]] = {
    events.Join: join,
    events.Sync: sync,
    events.Heartbeat: heartbeat,
    events.Leave: leave,
    events.Commit: commit,
    events.TxnCommit: txn_commit,
    events.TransactionEnded: transaction_ended,
    events.OffsetDelete: offset_delete,
    events.Delete: delete,
    events.TimersFired: timers_fired,
    events.RetentionCheck: retention_check,
    events.Load: load,
    events.Resume: resume,
    events.Unload: unload,
}


class ClassicMachine:
    """Decides for one group. The group's state is the caller's."""

    def __init__(self, settings: GroupSettings, ids: Ids, org: str) -> None:
        self._settings = settings
        self._ids = ids
        self._org = org
        self._taken_slugs: set[str] = set()

    def decide(self, group: Group | None, event: events.Event, now_ms: int) -> ClassicDecision:
        """Decides an event; `group` is None if there is no such group, and is never changed itself."""
        scene = Scene(now_ms, self._settings, self._ids, self._org, self._taken_slugs)
        return _HANDLERS[type(event)](group, event, scene)

    def claim_refused(self, claim: str) -> None:
        """Another group has this slug: the next decision claims another one."""
        self._taken_slugs.add(claim)

    # What happens to every thing that a node owns, as events.

    def load(self, group_id: str, fields: Mapping[str, Any], now_ms: int) -> ClassicDecision:
        return self.decide(None, events.Load(from_fields(group_id, fields)), now_ms)

    def resume(self, group: Group | None, now_ms: int) -> ClassicDecision:
        return self.decide(group, events.Resume(), now_ms)

    def unload(self, group: Group | None, now_ms: int) -> ClassicDecision:
        return self.decide(group, events.Unload(), now_ms)

    def timers_fired(self, group: Group | None, keys: Sequence[TimerKey], now_ms: int) -> ClassicDecision:
        return self.decide(group, events.TimersFired(tuple(keys)), now_ms)
