"""IncrementalAlterConfigs: single configs of a topic set, deleted, or a list among them made longer or shorter."""

from __future__ import annotations

from enum import IntEnum

from headrace.broker.administration import in_turn, look_again, message_of
from headrace.broker.broker import Broker
from headrace.broker.config_changes import NewConfigs, change_configs, check_no_nulls, repeated_resources
from headrace.broker.config_keys import invalid_config
from headrace.broker.dispatch import Call
from headrace.broker.topic_config_table import TOPIC_CONFIGS
from headrace.broker.topic_configs import default_of, is_list
from headrace.store.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    """What to do with a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    await look_again(call.broker)
    repeated = repeated_resources(request.resources)
    response = IncrementalAlterConfigsResponse()
    async for resource in in_turn(request.resources):
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            _check_operations(resource)
            increments = _increments(call.broker, resource)
            await change_configs(call.broker, resource, repeated, increments, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    return response


def _check_operations(resource: AlterConfigsResource) -> None:
    for config in resource.configs:
        if config.config_operation not in Operation.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
    check_no_nulls([config for config in resource.configs if config.config_operation != Operation.DELETE])


def _increments(broker: Broker, resource: AlterConfigsResource) -> NewConfigs:
    def apply(topic: Topic) -> tuple[dict[str, str | None], dict[str, str]]:
        return {config.name: _new_value(broker, topic, config) for config in resource.configs}, topic.configs

    return apply


def _new_value(broker: Broker, topic: Topic, config: AlterableConfig) -> str | None:
    operation, name, value = Operation(config.config_operation), config.name, config.value or ""
    if operation is Operation.SET:
        return value
    if operation is Operation.DELETE:
        return None
    if not is_list(name):
        raise invalid_config(f"Can't {operation.name} to key {name} because its type is not LIST.")
    present = topic.configs.get(name, default_of(TOPIC_CONFIGS[name], broker.options))
    items = [item for item in present.split(",") if item]
    named = [item.strip() for item in value.split(",")]
    if operation is Operation.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
