"""DescribeConfigs: the configs of topics and of this broker, where each value comes from, and what it means."""

from __future__ import annotations

import logging
from collections.abc import Collection

from headrace.broker.administration import in_turn, look_again, message_of, unknown_topic
from headrace.broker.broker import Broker
from headrace.broker.broker_configs import BrokerConfigValue, describe_broker
from headrace.broker.config_changes import ResourceType
from headrace.broker.config_keys import ConfigSource, ConfigType
from headrace.broker.creation import REPLICATION_FACTOR
from headrace.broker.dispatch import Call
from headrace.broker.records_behind import RECORDS_BEHIND, records_behind
from headrace.broker.tiering_status import TIERING, tiering_of
from headrace.broker.topic_configs import ConfigValue, describe_configs
from headrace.broker.topic_names import check_topic_name
from headrace.store.formats import is_tiered
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    await look_again(call.broker)
    response = DescribeConfigsResponse()
    # Asked for many times, a resource is described once: an answer is a hundred times the size of its question.
    asked = {(r.resource_type, r.resource_name, *sorted(r.configuration_keys or ())): r for r in request.resources}
    async for resource in in_turn(asked.values()):
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            result.configs = await _describe(call.broker, resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if not request.include_documentation:
                config.documentation = None
    return response


async def _describe(broker: Broker, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    only: Collection[str] | None = resource.configuration_keys or None
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            topic = await broker.store.catalogue.find(name)
            if topic is None:
                raise unknown_topic(name)
            found = [_of_topic(c) for c in describe_configs(topic.configs, broker.options, topic.ulid, only)]
            if only is not None and TIERING in only and is_tiered(topic.configs):
                found.append(_fact(TIERING, await tiering_of(broker, topic), "What the lake holds, by partition."))
        case ResourceType.BROKER:
            found = _describe_broker(broker, name)
        case ResourceType.BROKER_LOGGER:
            found = [_logger(broker, name)]
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise _bad_request("Client metrics subscription name must not be empty")
            found = []
        case ResourceType.GROUP:
            if not name:
                raise _bad_request("Group name must not be empty")
            found = await _identity_of_group(broker, name)
            if only is not None and RECORDS_BEHIND in only:
                only = {*only, *(counted := await records_behind(broker, name))}
                found += [_fact(key, value, "Records behind, by partition.") for key, value in counted.items()]
        case unknown:
            raise _bad_request(f"Unexpected resource type {unknown} for resource {name}")
    return [config for config in found if only is None or config.name in only]


async def _identity_of_group(broker: Broker, name: str) -> list[DescribeConfigsResourceResult]:
    """What Kafka's own answers about groups have no field for; nothing for a group that was never joined."""
    group = await broker.coordinator.describe_identity(name)
    if group is None or group.id is None:
        return []
    return [
        _fact("headrace.group.id", group.id, "The group's lasting id."),
        _fact("headrace.group.locator", group.locator, "The group's resource locator."),
        _fact("headrace.group.generation", str(group.generation), "The generation that was handed out last."),
    ]


def _fact(name: str, value: str | None, meaning: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=ConfigSource.DEFAULT_CONFIG,
        config_type=ConfigType.STRING,
        documentation=meaning,
    )


def _of_topic(config: ConfigValue) -> DescribeConfigsResourceResult:
    row = config.row
    effect = "" if row.has_effect else " Accepted without an effect here."
    return DescribeConfigsResourceResult(
        name=row.name,
        value=config.value,
        read_only=row.is_read_only,
        config_source=config.source,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in config.synonyms],
        config_type=row.type,
        documentation=row.meaning + effect,
    )


def _describe_broker(broker: Broker, name: str) -> list[DescribeConfigsResourceResult]:
    """This broker's configs; none for the empty name, which means what was set for all brokers while they run."""
    if not name:
        return []
    _check_me(broker, name, " or empty string")
    options, store = broker.options, broker.store
    facts = {
        "broker.id": str(store.nodes.me.id),
        "default.replication.factor": str(REPLICATION_FACTOR),
        "listeners": f"PLAINTEXT://{options.host}:{store.nodes.me.port}",
        "log.cleanup.policy": "delete",
        "log.dirs": str(store.link.address),
        "min.insync.replicas": "1",
        "node.id": str(store.nodes.me.id),
    }
    return [_of_broker(config) for config in describe_broker(options, facts)]


def _of_broker(config: BrokerConfigValue) -> DescribeConfigsResourceResult:
    synonyms = []
    if config.source is ConfigSource.STATIC_BROKER_CONFIG:
        synonyms.append(DescribeConfigsSynonym(config.name, config.value, config.source))
    if config.default is not None:
        synonyms.append(DescribeConfigsSynonym(config.name, config.default, ConfigSource.DEFAULT_CONFIG))
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=True,
        config_source=config.source,
        synonyms=synonyms,
        config_type=config.type,
        documentation=config.documentation,
    )


def _logger(broker: Broker, name: str) -> DescribeConfigsResourceResult:
    if not name:
        raise _bad_request("Broker id must not be empty")
    _check_me(broker, name, "")
    return DescribeConfigsResourceResult(
        name="root",
        value=logging.getLevelName(logging.getLogger().getEffectiveLevel()),
        read_only=True,
        config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        config_type=ConfigType.STRING,
        documentation="The setting log_level of headrace.",
    )


def _check_me(broker: Broker, name: str, other: str) -> None:
    me = broker.store.nodes.me.id
    if not name.isdigit():
        raise _bad_request(f"Broker id must be an integer, but it is: {name}")
    if int(name) != me:
        raise _bad_request(f"Unexpected broker id, expected {me}{other}, but received {name}")


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
