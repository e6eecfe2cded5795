"""FindCoordinator: which node looks after a group.

A transactional id has a coordinator too, although there are no transactions: it refuses the producer for good at
InitProducerId. A refusal already here would make some clients look for a coordinator again and again.
"""

from __future__ import annotations

import asyncio

from headrace.broker.dispatch import Call
from headrace.broker.flow import Turns
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1
_MANY_SINCE = 4


async def handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.version >= _MANY_SINCE:
        response = FindCoordinatorResponse()
        turns = Turns()
        for key in request.coordinator_keys:
            if turns.is_over():
                await asyncio.sleep(0)
            response.coordinators.append(_find(call, key, request.key_type))
        return response
    found = _find(call, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(call: Call, key: str, key_type: int) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        return _refused(key, ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} do not exist here.")
    if not key and key_type == _GROUP:
        return _refused(key, ErrorCode.INVALID_GROUP_ID, "A group id is not empty.")
    node = call.broker.store.nodes.owner(key.encode())
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
