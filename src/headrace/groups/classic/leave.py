"""LeaveGroup: one member, or from version 3 several, each with its own answer."""

from headrace.groups.classic.answers import LeaveAnswer, LeaveRow, leave_answer, leave_row, refusal
from headrace.groups.classic.events import Leave, LeavingMember
from headrace.groups.classic.members import check_member, forget_pending, remove_member
from headrace.groups.classic.rebalance import complete_if_all_joined, membership_changed
from headrace.groups.classic.scene import ClassicDecision, Scene, Turn, answered
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import FIXED_ANSWERS, ClassicState, GroupApi
from headrace.wire.errors import ErrorCode


def leave(group: Group | None, event: Leave, scene: Scene) -> ClassicDecision:
    fixed = FIXED_ANSWERS[GroupApi.LEAVE]
    if not event.group_id:
        return answered(group, event.token, refusal(event, ErrorCode.INVALID_GROUP_ID))
    if group is None:
        return answered(group, event.token, _all_refused(event, fixed[None]))
    if group.state is ClassicState.DEAD:
        return answered(group, event.token, LeaveAnswer(fixed[ClassicState.DEAD]))
    turn = Turn(group.fork(), scene)
    size_before = len(group.members)
    rows = tuple(_leave_one(turn, member) for member in event.members)
    if len(turn.group.members) < size_before:
        membership_changed(turn)
    elif len(turn.group.pending) < len(group.pending):
        # Nobody owned anything by that id: a Stable group goes on undisturbed.
        complete_if_all_joined(turn)
    turn.reply(event.token, leave_answer(event.version, rows))
    return turn.decision()


def _all_refused(event: Leave, error: ErrorCode) -> LeaveAnswer:
    return leave_answer(event.version, tuple(leave_row(member, error) for member in event.members))


def _leave_one(turn: Turn, leaving: LeavingMember) -> LeaveRow:
    group = turn.group
    member_id = leaving.member_id
    if not member_id and leaving.instance_id is not None:
        # An administrator removes a static member by the name that it has for it.
        member_id = group.instances.get(leaving.instance_id, "")
    if member_id in group.pending:
        forget_pending(turn, member_id)
        return leave_row(leaving, ErrorCode.NONE)
    error = check_member(group, member_id, leaving.instance_id)
    if not error:
        remove_member(turn, member_id)
    return leave_row(leaving, error)
