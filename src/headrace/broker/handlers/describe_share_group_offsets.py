"""DescribeShareGroupOffsets: there are no share groups; as in Kafka, an unknown group has no offsets."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized
from headrace.security.acls import Operation, ResourceType
from headrace.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)


async def handle(call: Call, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[_group(call, asked.group_id) for asked in request.groups])


def _group(call: Call, group_id: str) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    except NotAuthorized as error:
        return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=error.code, error_message=error.message)
    return DescribeShareGroupOffsetsResponseGroup(group_id)
