"""JoinGroup: a member joins or rejoins. The response is held back until the others have joined."""

from __future__ import annotations

from collections.abc import Hashable

from headrace.broker.call import Call
from headrace.broker.groups.packed_answers import join_answer
from headrace.groups.classic.answers import JoinAnswer, join_answer_for
from headrace.groups.classic.events import Join
from headrace.groups.classic.state import Protocol
from headrace.security.acls import Operation
from headrace.wire.apis import JOIN_GROUP
from headrace.wire.codec import Pieces
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import response_frame
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    if not request.group_id:
        refused = JoinAnswer(error=ErrorCode.INVALID_GROUP_ID, member_id=request.member_id)
        return _response(join_answer_for(call.version, refused))
    answer = await call.ask_group(Operation.READ, event_of(call, request, call.new_token()), JoinAnswer)
    return _response(answer)


def event_of(call: Call, request: JoinGroupRequest, token: Hashable) -> Join:
    return Join(
        token=token,
        group_id=request.group_id,
        version=call.version,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=f"/{call.connection.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple([Protocol(p.name, p.metadata) for p in request.protocols]),
    )


def _response(answer: JoinAnswer) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[JoinGroupResponseMember(m.member_id, m.instance_id, m.metadata) for m in answer.members],
    )


def frame_of(version: int, correlation_id: int, answer: JoinAnswer) -> Pieces:
    if answer.members:
        return response_frame(JOIN_GROUP, _response(answer), version, correlation_id)
    frame = join_answer(
        version,
        correlation_id,
        answer.error,
        answer.generation,
        answer.protocol_type,
        answer.protocol_name,
        answer.leader,
        answer.skip_assignment,
        answer.member_id,
    )
    return [frame]
