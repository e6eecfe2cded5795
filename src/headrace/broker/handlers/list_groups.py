"""ListGroups: the groups of this node; a client asks every node.

If some cannot be known now, the answer has an error and all others, as Kafka's while a coordinator loads.
"""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.groups.classic.describe import is_listed, listed
from headrace.security.acls import Operation
from headrace.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    groups, error = await call.groups(Operation.DESCRIBE)
    rows = [listed(group) for group in groups if is_listed(group, request.states_filter, request.types_filter)]
    return ListGroupsResponse(
        error_code=error,
        groups=[ListedGroup(row.group_id, row.protocol_type, row.state, row.group_type) for row in rows],
    )
