"""DeleteGroups: deletes groups without members, with their committed offsets."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized
from headrace.groups.classic.answers import DeleteAnswer
from headrace.groups.classic.events import Delete
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

_MESSAGES = {
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.INVALID_GROUP_ID: "The group id is empty.",
}


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[await _delete(call, group_id) for group_id in request.groups_names])


async def _delete(call: Call, group_id: str) -> DeletableGroupResult:
    code = ErrorCode.INVALID_GROUP_ID
    try:
        if group_id:
            delete = Delete(token=call.new_token(), group_id=group_id, version=call.version)
            answer = await call.ask_group(Operation.DELETE, delete, DeleteAnswer)
            code = ErrorCode(answer.error)
            if not code:
                call.note("deleted a group", group=group_id)
    except NotAuthorized as error:
        return DeletableGroupResult(group_id, error.code, error.message)
    return DeletableGroupResult(group_id, code, _MESSAGES.get(code))
