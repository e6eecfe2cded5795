"""Heartbeat: keeps a member's session alive, and tells it when to rejoin."""

from __future__ import annotations

from collections.abc import Hashable

from headrace.broker.call import Call
from headrace.broker.groups.packed_answers import heartbeat_answer
from headrace.groups.classic.answers import HeartbeatAnswer
from headrace.groups.classic.events import Heartbeat
from headrace.security.acls import Operation
from headrace.wire.codec import Pieces
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    answer = await call.ask_group(Operation.READ, event_of(call, request, call.new_token()), HeartbeatAnswer)
    return HeartbeatResponse(error_code=answer.error)


def event_of(call: Call, request: HeartbeatRequest, token: Hashable) -> Heartbeat:
    return Heartbeat(
        token=token,
        group_id=request.group_id,
        version=call.version,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )


def frame_of(version: int, correlation_id: int, answer: HeartbeatAnswer) -> Pieces:
    return [heartbeat_answer(version, correlation_id, answer.error)]
