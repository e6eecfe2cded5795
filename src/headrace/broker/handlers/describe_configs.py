"""DescribeConfigs: the configs of topics, brokers and groups, where each value comes from, and what it means."""

from __future__ import annotations

import logging
from collections.abc import Collection

from headrace.broker.administration import in_turn, message_of, unknown_topic
from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.configs.broker import FOR_ALL
from headrace.broker.configs.broker_table import minutes
from headrace.broker.configs.changes import ConfigResourceType
from headrace.broker.configs.facts import broker_facts, topic_facts
from headrace.broker.configs.groups import describe_group
from headrace.broker.configs.layers import ConfigSource, DescribedConfig
from headrace.broker.configs.topics import describe_configs
from headrace.broker.groups.records_behind import RECORDS_BEHIND, records_behind
from headrace.broker.topics.creation import REPLICATION_FACTOR
from headrace.broker.topics.names import check_topic_name
from headrace.groups.classic import ClassicState
from headrace.groups.classic.describe import describe
from headrace.security.acls import Operation
from headrace.security.acls import ResourceType as AclType
from headrace.store.cluster.configs import of_group
from headrace.store.topic_configs.keys import ConfigType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

LOCATOR = "headrace.topic.locator"
"""Told to those who ask for it by name."""


async def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    await call.look_at_configs()
    response = DescribeConfigsResponse()
    # Asked for many times, a resource is described once: an answer is a hundred times the size of its question.
    asked = {(r.resource_type, r.resource_name, *sorted(r.configuration_keys or ())): r for r in request.resources}
    async for resource in in_turn(asked.values()):
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            result.configs = await _describe(call, resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if not request.include_documentation:
                config.documentation = None
    return response


async def _describe(call: Call, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    broker, name = call.broker, resource.resource_name
    only: Collection[str] | None = resource.configuration_keys or None
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            call.check(Operation.DESCRIBE_CONFIGS, AclType.TOPIC, name)
            check_topic_name(name)
            topic = await call.find_topic(Operation.DESCRIBE_CONFIGS, name)
            if topic is None:
                raise unknown_topic(name)
            found = [_shown(c) for c in describe_configs(topic.configs, broker.configs.layers, topic.ulid, only)]
            if only is not None and LOCATOR in only:
                found.append(_fact(LOCATOR, f"{call.caller.organisation}/topics/{name}", "The topic's locator."))
            found += [_fact(*fact) for fact in await topic_facts(call, topic, only)]
        case ConfigResourceType.BROKER:
            call.check_all_tenants(Operation.DESCRIBE_CONFIGS)
            found = _describe_broker(broker, name)
            found += [_fact(*fact) for fact in await broker_facts(broker, only)]
        case ConfigResourceType.BROKER_LOGGER:
            call.check_all_tenants(Operation.DESCRIBE_CONFIGS)
            found = [_logger(broker, name)]
        case ConfigResourceType.CLIENT_METRICS:
            call.check_cluster(Operation.DESCRIBE_CONFIGS)
            if not name:
                raise _bad_request("Client metrics subscription name must not be empty")
            found = []
        case ConfigResourceType.GROUP:
            call.check(Operation.DESCRIBE_CONFIGS, AclType.GROUP, name)
            if not name:
                raise _bad_request("Group name must not be empty")
            configs = call.group_configs(Operation.DESCRIBE_CONFIGS, name)
            found = [_shown(config) for config in describe_group(configs.get(of_group(name)))]
            found += await _identity_of_group(call, name, only)
            if only is not None and RECORDS_BEHIND in only:
                only = {*only, *(counted := await records_behind(call, name))}
                found += [_fact(key, value, "Records behind, by partition.") for key, value in counted.items()]
        case unknown:
            raise _bad_request(f"Unexpected resource type {unknown} for resource {name}")
    return [config for config in found if only is None or config.name in only]


async def _identity_of_group(
    call: Call, name: str, only: Collection[str] | None
) -> list[DescribeConfigsResourceResult]:
    """Values that Kafka's group responses have no field for; none for a group that was never joined.

    Any node may be asked for configs; of this only the one that looks after the group knows, and only who asks for it
    by name is sent there.
    """
    try:
        group = (await call.group(Operation.DESCRIBE_CONFIGS, name)).state
    except KafkaError:
        if only is None or not any(key.startswith("headrace.") for key in only):
            return []
        raise
    if group is None or group.state is ClassicState.DEAD:
        return []
    seen = describe(group, name, version=0)
    if seen.id is None:
        return []
    return [
        _fact("headrace.group.id", seen.id, "The group's permanent id."),
        _fact("headrace.group.locator", seen.locator, "The group's resource locator."),
        _fact("headrace.group.generation", str(seen.generation), "The last generation."),
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


def _shown(config: DescribedConfig) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in config.synonyms],
        config_type=config.type,
        documentation=config.documentation,
    )


def _describe_broker(broker: Broker, name: str) -> list[DescribeConfigsResourceResult]:
    """This broker's configs; with the empty name, the dynamic configs of all brokers."""
    if name == FOR_ALL:
        return [_shown(config) for config in broker.configs.describe_all()]
    _check_me(broker, name, " or empty string")
    options, store = broker.options, broker.store
    facts = {
        "advertised.listeners": ",".join(_listener(at.host, at.port) for at in store.nodes.me.endpoints),
        "broker.id": str(store.nodes.me.id),
        **({"broker.rack": store.nodes.me.rack} if store.nodes.me.rack else {}),
        "default.replication.factor": str(REPLICATION_FACTOR),
        "listeners": _listener(options.host, options.port),
        "log.dirs": store.address,
        "node.id": str(store.nodes.me.id),
        "offsets.retention.minutes": minutes(broker.configs.groups.offsets_retention_ms),
    }
    return [_shown(config) for config in broker.configs.describe(facts)]


def _listener(host: str, port: int) -> str:
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"


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
