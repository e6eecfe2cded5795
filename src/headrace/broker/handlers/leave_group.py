"""LeaveGroup: members leave. Up to version 2 one at a time, from 3 on several, static ones by instance id."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.groups.classic.answers import LEAVE_ROWS_FROM, LeaveAnswer
from headrace.groups.classic.events import Leave, LeavingMember
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if call.version >= LEAVE_ROWS_FROM:
        members = tuple(LeavingMember(m.member_id, m.group_instance_id) for m in request.members)
    else:
        members = (LeavingMember(request.member_id),)
    leave = Leave(token=call.new_token(), group_id=request.group_id, version=call.version, members=members)
    answer = await call.ask_group(Operation.READ, leave, LeaveAnswer)
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[MemberResponse(row.member_id, row.instance_id, row.error) for row in answer.members],
    )
