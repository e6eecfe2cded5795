"""ListGroups: the groups of this node; a client asks every node."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.groups.classic.describe import is_listed, listed
from headrace.security.acls import Operation
from headrace.wire.errors import KafkaError
from headrace.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        groups = await call.groups(Operation.DESCRIBE)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    rows = [listed(group) for group in groups if is_listed(group, request.states_filter, request.types_filter)]
    return ListGroupsResponse(
        groups=[ListedGroup(row.group_id, row.protocol_type, row.state, row.group_type) for row in rows]
    )
