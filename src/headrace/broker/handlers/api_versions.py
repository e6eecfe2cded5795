"""ApiVersions: the supported APIs. From version 5 a client also names the cluster and node it expects (KIP-1242)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.dispatch import supported_apis
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_SOFTWARE_SINCE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The allowed form of a client library's name and version (KIP-511)."""

_TRANSACTIONS = "transaction.version"
_TRANSACTION_VERSION = 2
"""Tells clients that every transaction has an epoch of its own (KIP-890). Other features are not named: a client that
looks for one takes the lack of it for a broker that does not have it."""


async def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return versions(call.broker, call.version, request)


def versions(broker: Broker, version: int, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """The answer, to clients that did not log in too; without a request: to one of a version that is not known."""
    if request is None:
        return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, supported_apis())
    if version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    store = broker.store
    if (request.cluster_id is not None and request.cluster_id != store.cluster_id) or (
        request.node_id >= 0 and request.node_id != store.nodes.me.id
    ):
        return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        ErrorCode.NONE,
        supported_apis(),
        supported_features=[SupportedFeatureKey(_TRANSACTIONS, 0, _TRANSACTION_VERSION)],
        finalized_features_epoch=0,
        finalized_features=[FinalizedFeatureKey(_TRANSACTIONS, _TRANSACTION_VERSION, _TRANSACTION_VERSION)],
    )
