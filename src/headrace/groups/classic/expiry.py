"""Decisions when timers of the group fire: all that are due in one, since a whole group may go at once."""

from headrace.groups.classic.events import TimersFired
from headrace.groups.classic.members import forget_pending, remove_member
from headrace.groups.classic.rebalance import (
    complete_if_all_joined,
    join_timer_fired,
    membership_changed,
    sync_timer_fired,
)
from headrace.groups.classic.scene import ClassicDecision, Scene, Turn
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import TimerKey, TimerKind, session_timer


def timers_fired(group: Group | None, event: TimersFired, scene: Scene) -> ClassicDecision:
    """Every outcome sets or cancels the timers that fired, so that none is due for ever."""
    if group is None or group.state is ClassicState.DEAD:
        return ClassicDecision(group, timers=dict.fromkeys(event.keys))
    turn = Turn(group.fork(), scene)
    for key in event.keys:
        if not turn.has_changed_timer(key):  # else one before it renewed or ended this one
            _fire(turn, key)
    return turn.decision()


def _fire(turn: Turn, key: TimerKey) -> None:
    kind, member_id = key
    match kind:
        case TimerKind.SESSION:
            _session_ended(turn, member_id)
        case TimerKind.PENDING:
            forget_pending(turn, member_id)
            complete_if_all_joined(turn)
        case TimerKind.JOIN:
            join_timer_fired(turn)
        case TimerKind.SYNC:
            sync_timer_fired(turn)


def _session_ended(turn: Turn, member_id: str) -> None:
    turn.cancel_timer(session_timer(member_id))
    if member_id in turn.group.members:
        remove_member(turn, member_id)
        membership_changed(turn)
