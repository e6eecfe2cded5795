"""ConsumerGroupDescribe: no group is of this type. On the error, clients fall back to DescribeGroups."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.groups.types import not_found
from headrace.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def handle(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    found = [(group_id, *not_found(call, group_id)) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=[DescribedGroup(code, why, group_id) for group_id, code, why in found])
