"""AlterConfigs: replaces all configs of a resource; those not named get their default."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.administration import in_turn, message_of, tell_nodes
from headrace.broker.call import Call
from headrace.broker.configs.changes import Configured, NewConfigs, change_configs, check_no_nulls, repeated_resources
from headrace.wire.errors import KafkaError
from headrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    await call.look_at_configs()
    version = call.topics_version
    repeated = repeated_resources(request.resources)
    response = AlterConfigsResponse()
    async for resource in in_turn(request.resources):
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            check_no_nulls(resource.configs)
            await change_configs(call, resource, repeated, _replacement(resource), request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    await tell_nodes(call, version)
    return response


def _replacement(resource: AlterConfigsResource) -> NewConfigs:
    def replace(configured: Configured) -> tuple[dict[str, str | None], Mapping[str, str]]:
        return {config.name: config.value for config in resource.configs}, configured.kept

    return replace
