"""Heartbeat: the most frequent request of all. It renews a session, and copies and stores nothing."""

from headrace.groups.classic.answers import HeartbeatAnswer
from headrace.groups.classic.events import Heartbeat
from headrace.groups.classic.members import check_member
from headrace.groups.classic.scene import ClassicDecision, Reply, Scene, answered
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import FIXED_ANSWERS, ClassicState, GroupApi
from headrace.groups.classic.timers import TimerChanges, TimerKind
from headrace.wire.errors import ErrorCode

_FIXED = FIXED_ANSWERS[GroupApi.HEARTBEAT]
_SESSION = TimerKind.SESSION


def heartbeat(group: Group | None, event: Heartbeat, scene: Scene) -> ClassicDecision:
    error = _check(group, event)
    if group is None or error:
        return answered(group, event.token, HeartbeatAnswer(error))
    reply: Reply = (event.token, HeartbeatAnswer(_FIXED[group.state]))
    return ClassicDecision(group, replies=(reply,), timers=renewed_session(group, event.member_id, scene))


def _check(group: Group | None, event: Heartbeat) -> ErrorCode:
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return _FIXED[None]
    if group.state is ClassicState.DEAD:
        return _FIXED[ClassicState.DEAD]
    error = check_member(group, event.member_id, event.instance_id)
    if not error and event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def renewed_session(group: Group, member_id: str, scene: Scene) -> TimerChanges:
    """A parked member has no session that runs, so there is none to renew."""
    if member_id in group.joins or member_id in group.syncs:
        return {}
    return {(_SESSION, member_id): scene.now_ms + group.members[member_id].session_timeout_ms}
