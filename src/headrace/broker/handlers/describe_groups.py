"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from headrace.broker.authorized import NOT_ASKED
from headrace.broker.call import Call
from headrace.groups.classic.describe import describe
from headrace.security.acls import Operation, ResourceType
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    asked = request.include_authorized_operations
    return DescribeGroupsResponse(groups=[await _describe(call, group_id, asked) for group_id in request.groups])


async def _describe(call: Call, group_id: str, asks_operations: bool) -> DescribedGroup:
    try:
        group = (await call.group(Operation.DESCRIBE, group_id)).state
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
    seen = describe(group, group_id, call.version)
    return DescribedGroup(
        error_code=seen.error,
        error_message=f"Group {group_id} not found." if seen.error else None,
        group_id=group_id,
        group_state=seen.state,
        protocol_type=seen.protocol_type,
        protocol_data=seen.protocol_name,
        members=[
            DescribedGroupMember(m.member_id, m.instance_id, m.client_id, m.client_host, m.metadata, m.assignment)
            for m in seen.members
        ],
        authorized_operations=call.operations(ResourceType.GROUP, group_id) if asks_operations else NOT_ASKED,
    )
