"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from headrace.broker import authorized
from headrace.broker.dispatch import Call
from headrace.groups.describe import describe
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    operations = authorized.GROUP if request.include_authorized_operations else authorized.NOT_ASKED
    return DescribeGroupsResponse(groups=[await _describe(call, group_id, operations) for group_id in request.groups])


async def _describe(call: Call, group_id: str, operations: int) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        live = await call.broker.coordinator.find(group_id)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, group_id=group_id)
    seen = describe(live.group, group_id, call.version)
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
        authorized_operations=operations,
    )
