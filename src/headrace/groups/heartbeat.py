"""Heartbeat: the most frequent request of all. It renews a session, and copies and stores nothing."""

from headrace.groups.answers import HeartbeatAnswer
from headrace.groups.errors import ErrorCode
from headrace.groups.events import Heartbeat
from headrace.groups.members import check_member
from headrace.groups.scene import Decision, Reply, Scene
from headrace.groups.state import Group
from headrace.groups.table import FIXED_ANSWERS, Api, State
from headrace.groups.timers import TimerChanges, session_timer


def heartbeat(group: Group | None, event: Heartbeat, scene: Scene) -> Decision:
    error = _check(group, event)
    timers: TimerChanges = {}
    if group is not None and not error:
        error = FIXED_ANSWERS[Api.HEARTBEAT][group.state]
        timers = renewed_session(group, event.member_id, scene)
    return Decision(group, replies=(Reply(event.token, HeartbeatAnswer(error)),), timers=timers)


def _check(group: Group | None, event: Heartbeat) -> ErrorCode:
    fixed = FIXED_ANSWERS[Api.HEARTBEAT]
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return fixed[None]
    if group.state is State.DEAD:
        return fixed[State.DEAD]
    error = check_member(group, event.member_id, event.instance_id)
    if not error and event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def renewed_session(group: Group, member_id: str, scene: Scene) -> TimerChanges:
    """A parked member has no session that runs, so there is none to renew."""
    if group.is_parked(member_id):
        return {}
    return {session_timer(member_id): scene.now_ms + group.members[member_id].session_timeout_ms}
