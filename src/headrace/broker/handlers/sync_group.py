"""SyncGroup: a member gets its assignment; the leader brings everybody's."""

from __future__ import annotations

from collections.abc import Hashable

from headrace.broker.call import Call
from headrace.broker.groups.tokens import new_token
from headrace.groups.classic.answers import SyncAnswer
from headrace.groups.classic.events import Sync
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    answer = await call.ask_group(Operation.READ, event_of(call, request, new_token()), SyncAnswer)
    return response_of(answer)


def event_of(call: Call, request: SyncGroupRequest, token: Hashable) -> Sync:
    return Sync(
        token=token,
        group_id=request.group_id,
        version=call.version,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple([(a.member_id, a.assignment) for a in request.assignments]),
    )


def response_of(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
