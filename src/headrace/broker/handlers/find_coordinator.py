"""FindCoordinator: the node that owns a group or a transactional id."""

from __future__ import annotations

import asyncio

from headrace.broker.call import Call
from headrace.broker.network.flow import Turns
from headrace.broker.rights.asking import NotAuthorized
from headrace.security.acls import Operation, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1
_KINDS = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
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
        return _refused(key, ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.")
    try:
        call.check(Operation.DESCRIBE, _KINDS[key_type], key)
    except NotAuthorized as error:
        return _refused(key, error.code, error.message or "")
    node = call.owner_of(key)
    if (at := call.endpoint(node)) is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not reachable on this listener.")
    return Coordinator(key=key, node_id=node.id, host=at.host, port=at.port)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
