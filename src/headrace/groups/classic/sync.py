"""SyncGroup: the leader submits the assignment; the others wait for it.

The assignment is stored before any member learns of it, so it survives a crash.
"""

import msgspec

from headrace.groups.classic.answers import SyncAnswer, refusal
from headrace.groups.classic.events import Sync
from headrace.groups.classic.members import check_member, park_sync
from headrace.groups.classic.scene import ClassicDecision, Scene, Turn, answered
from headrace.groups.classic.state import Group, Parked
from headrace.groups.classic.table import FIXED_ANSWERS, ClassicState, GroupApi, Trigger
from headrace.groups.classic.timers import SYNC_TIMER
from headrace.wire.errors import ErrorCode

PROTOCOL_REQUIRED_FROM = 5


def sync(group: Group | None, event: Sync, scene: Scene) -> ClassicDecision:
    error = _check(group, event)
    if error or group is None:
        return answered(group, event.token, refusal(event, error))
    turn = Turn(_fork(group, event.member_id), scene)
    if not turn.group.unsynced:
        turn.cancel_timer(SYNC_TIMER)
    if group.state is ClassicState.STABLE:
        turn.reply(event.token, _own_assignment(group, event.member_id))
        return turn.decision()
    park_sync(turn, event.member_id, Parked(event.token, event.version))
    if event.member_id == group.leader:
        _assign(turn, dict(event.assignments))
    return turn.decision()


def _fork(group: Group, member_id: str) -> Group:
    """A fork without this member among the unsynced. All members sync at once, so only what changes here is copied."""
    return msgspec.structs.replace(group, syncs=group.syncs.copy(), unsynced=group.unsynced - {member_id})


def _check(group: Group | None, event: Sync) -> ErrorCode:
    """Kafka's order: protocol fields there, Dead, member, generation, protocol, state."""
    fixed = FIXED_ANSWERS[GroupApi.SYNC]
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if event.version >= PROTOCOL_REQUIRED_FROM and None in (event.protocol_type, event.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None:
        return fixed[None]
    if group.state in (ClassicState.EMPTY, ClassicState.DEAD):
        return fixed[group.state]
    error = check_member(group, event.member_id, event.instance_id)
    if error:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(event.protocol_type, group.protocol_type) or _differ(event.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return fixed.get(group.state, ErrorCode.NONE)


def _differ(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual


def _assign(turn: Turn, assignments: dict[str, bytes]) -> None:
    """Members that the leader forgot get an empty assignment; ids that are no members are ignored."""
    group = turn.group
    group.members = {
        member_id: member
        if (given := assignments.get(member_id, b"")) == member.assignment
        else msgspec.structs.replace(member, assignment=given)
        for member_id, member in group.members.items()
    }
    group.are_assigned = True
    turn.move(Trigger.ASSIGNED)
    turn.store()
    for member_id in list(group.syncs):
        turn.release_sync(member_id, _own_assignment(group, member_id))
        turn.renew_session(member_id)


def _own_assignment(group: Group, member_id: str) -> SyncAnswer:
    return SyncAnswer(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=group.members[member_id].assignment,
    )
