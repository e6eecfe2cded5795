"""SyncGroup: a member gets its assignment; the leader brings everybody's."""

from __future__ import annotations

from collections.abc import Hashable

from headrace.broker.call import Call
from headrace.broker.groups.packed_answers import sync_answer
from headrace.groups.classic.answers import SyncAnswer
from headrace.groups.classic.events import Sync
from headrace.security.acls import Operation
from headrace.wire.codec import Pieces
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    answer = await call.ask_group(Operation.READ, event_of(call, request, call.new_token()), SyncAnswer)
    return SyncGroupResponse(0, answer.error, answer.protocol_type, answer.protocol_name, answer.assignment)


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


def frame_of(version: int, correlation_id: int, answer: SyncAnswer) -> Pieces:
    frame = sync_answer(
        version, correlation_id, answer.error, answer.protocol_type, answer.protocol_name, answer.assignment
    )
    return [frame]
