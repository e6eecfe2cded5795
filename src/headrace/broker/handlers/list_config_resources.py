"""ListConfigResources: resources with configs. Version 0 asks only for client metrics, of which there are none."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.configs.changes import ConfigResourceType
from headrace.broker.rights.asking import OnCluster
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_DESCRIBE = OnCluster(Operation.DESCRIBE_CONFIGS)
_TYPES_SINCE = 1
_ALL = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
"""In Kafka's order."""


async def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if call.version < _TYPES_SINCE:
        return ListConfigResourcesResponse()
    if not set(_ALL).issuperset(request.resource_types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    await call.look_at_configs()
    asked = set(request.resource_types) or set(_ALL)
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for kind in _ALL if kind in asked for name in _names(call, kind)]
    )


def _names(call: Call, kind: ConfigResourceType) -> list[str]:
    match kind:
        case ConfigResourceType.GROUP:
            return sorted(call.group_configs(_DESCRIBE, "").groups())
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(node.id) for node in call.broker.store.nodes.live]
        case ConfigResourceType.TOPIC:
            return [topic.name for topic in call.topics(_DESCRIBE)]
        case _:
            return []
