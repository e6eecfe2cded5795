"""Decisions when a timer of the group fires."""

from headrace.groups.classic.events import TimerFired
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
from headrace.groups.classic.timers import TimerKind


def timer_fired(group: Group | None, event: TimerFired, scene: Scene) -> ClassicDecision:
    """Every outcome sets or cancels the timer that fired, so that it is not due for ever."""
    if group is None or group.state is ClassicState.DEAD:
        return ClassicDecision(group, timers={event.key: None})
    turn = Turn(group.fork(), scene)
    match event.key.kind:
        case TimerKind.SESSION:
            _session_ended(turn, event)
        case TimerKind.PENDING:
            forget_pending(turn, event.key.member_id)
            complete_if_all_joined(turn)
        case TimerKind.JOIN:
            join_timer_fired(turn)
        case TimerKind.SYNC:
            sync_timer_fired(turn)
    return turn.decision()


def _session_ended(turn: Turn, event: TimerFired) -> None:
    member_id = event.key.member_id
    turn.cancel_timer(event.key)
    if member_id in turn.group.members:
        remove_member(turn, member_id)
        membership_changed(turn)
