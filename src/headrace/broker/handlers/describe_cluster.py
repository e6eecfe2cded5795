"""DescribeCluster: the brokers that are alive, and which of them is the controller."""

from __future__ import annotations

from headrace.broker.authorized import NOT_ASKED, cluster_operations
from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


async def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    store = call.broker.store
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=store.cluster_id,
        controller_id=store.nodes.controller.id,
        # A broker is alive or gone here, so none is ever fenced.
        brokers=[
            DescribeClusterBroker(node.id, at.host, at.port, node.rack or None)
            for node in store.nodes.live
            if (at := call.endpoint(node))
        ],
        cluster_authorized_operations=cluster_operations(call) if asked else NOT_ASKED,
    )
