"""IncrementalAlterConfigs: sets or deletes single configs of a resource, or appends to and subtracts from lists."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from headrace.broker.administration import in_turn, message_of, tell_nodes
from headrace.broker.call import Call
from headrace.broker.configs.changes import Configured, NewConfigs, change_configs, check_no_nulls, repeated_resources
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ConfigOperation(IntEnum):
    """Operations on a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    await call.look_at_configs()
    version = call.topics_version
    repeated = repeated_resources(request.resources)
    response = IncrementalAlterConfigsResponse()
    async for resource in in_turn(request.resources):
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            _check_operations(resource)
            increments = _increments(resource)
            await change_configs(call, resource, repeated, increments, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    await tell_nodes(call, version)
    return response


def _check_operations(resource: AlterConfigsResource) -> None:
    for config in resource.configs:
        if config.config_operation not in ConfigOperation.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}")
    check_no_nulls([config for config in resource.configs if config.config_operation != ConfigOperation.DELETE])


def _increments(resource: AlterConfigsResource) -> NewConfigs:
    def apply(configured: Configured) -> tuple[dict[str, str | None], Mapping[str, str]]:
        changes = {config.name: _new_value(configured, config) for config in resource.configs}
        return changes, configured.present

    return apply


def _new_value(configured: Configured, config: AlterableConfig) -> str | None:
    operation, name, value = ConfigOperation(config.config_operation), config.name, config.value or ""
    if operation is ConfigOperation.SET:
        return value
    if operation is ConfigOperation.DELETE:
        return None
    items = [item for item in configured.list_value(name, operation.name).split(",") if item]
    named = [item.strip() for item in value.split(",")]
    if operation is ConfigOperation.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
