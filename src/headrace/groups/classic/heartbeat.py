"""Heartbeat: the most frequent request of all. It renews a session, and copies and stores nothing."""

from headrace.groups.classic.answers import HeartbeatAnswer
from headrace.groups.classic.events import Heartbeat
from headrace.groups.classic.members import check_member
from headrace.groups.classic.scene import ClassicDecision, Reply, Scene
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import FIXED_ANSWERS, ClassicState, GroupApi
from headrace.groups.classic.timers import TimerChanges, session_timer
from headrace.wire.errors import ErrorCode


def heartbeat(group: Group | None, event: Heartbeat, scene: Scene) -> ClassicDecision:
    error = _check(group, event)
    timers: TimerChanges = {}
    if group is not None and not error:
        error = FIXED_ANSWERS[GroupApi.HEARTBEAT][group.state]
        timers = renewed_session(group, event.member_id, scene)
    return ClassicDecision(group, replies=(Reply(event.token, HeartbeatAnswer(error)),), timers=timers)


def _check(group: Group | None, event: Heartbeat) -> ErrorCode:
    fixed = FIXED_ANSWERS[GroupApi.HEARTBEAT]
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return fixed[None]
    if group.state is ClassicState.DEAD:
        return fixed[ClassicState.DEAD]
    error = check_member(group, event.member_id, event.instance_id)
    if not error and event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def renewed_session(group: Group, member_id: str, scene: Scene) -> TimerChanges:
    """A parked member has no session that runs, so there is none to renew."""
    if group.is_parked(member_id):
        return {}
    return {session_timer(member_id): scene.now_ms + group.members[member_id].session_timeout_ms}
