"""Heartbeat: a member is alive, and learns whether it has to join again."""

from __future__ import annotations

from typing import cast

from headrace.broker.coordinator import new_token
from headrace.broker.dispatch import Call
from headrace.groups.answers import HeartbeatAnswer
from headrace.groups.events import Heartbeat
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    beat = Heartbeat(
        token=new_token(),
        group_id=request.group_id,
        version=call.version,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
    )
    answer = cast("HeartbeatAnswer", await call.broker.coordinator.ask(beat))
    return HeartbeatResponse(error_code=answer.error)
