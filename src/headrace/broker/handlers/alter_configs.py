"""AlterConfigs: all of a topic's configs replaced by those of the request; what it does not name gets its default."""

from __future__ import annotations

from headrace.broker.administration import in_turn, look_again, message_of
from headrace.broker.config_changes import NewConfigs, change_configs, check_no_nulls, repeated_resources
from headrace.broker.dispatch import Call
from headrace.broker.topic_config_table import FIXED
from headrace.store.catalogue import Topic
from headrace.wire.errors import KafkaError
from headrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    await look_again(call.broker)
    repeated = repeated_resources(request.resources)
    response = AlterConfigsResponse()
    async for resource in in_turn(request.resources):
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            check_no_nulls(resource.configs)
            await change_configs(call.broker, resource, repeated, _replacement(resource), request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    return response


def _replacement(resource: AlterConfigsResource) -> NewConfigs:
    def replace(topic: Topic) -> tuple[dict[str, str | None], dict[str, str]]:
        # What was chosen at creation: leaving it out does not mean to change it.
        kept = {name: topic.configs[name] for name in FIXED if name in topic.configs}
        return {config.name: config.value for config in resource.configs}, kept

    return replace
