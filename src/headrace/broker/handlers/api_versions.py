"""ApiVersions: what this broker speaks. From version 5 a client also says whom it believes to talk to (KIP-1242)."""

from __future__ import annotations

from headrace.broker.dispatch import Call, supported_apis
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


async def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    store = call.broker.store
    if (request.cluster_id is not None and request.cluster_id != store.cluster_id) or (
        request.node_id >= 0 and request.node_id != store.nodes.me.id
    ):
        return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(ErrorCode.NONE, supported_apis())
