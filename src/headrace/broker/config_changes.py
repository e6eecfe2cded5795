"""Changing configs: what AlterConfigs and IncrementalAlterConfigs have in common.

Only topics have configs that can be changed while the broker runs. For anything else the answer says which setting of
the broker to change instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from headrace.broker.administration import change_topic, duplicates
from headrace.broker.broker_configs import BROKER_CONFIGS
from headrace.broker.tiering import check_tiering
from headrace.broker.topic_configs import check_changed_configs
from headrace.broker.topic_names import check_topic_name
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.catalogue import Topic


class ResourceType(IntEnum):
    """What has configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Change(Protocol):
    """One config of a request."""

    name: str
    value: str | None


class Resource(Protocol):
    """One resource of a request."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[Change]: ...


NewConfigs = Callable[["Topic"], tuple[dict[str, str | None], dict[str, str]]]
"""From a topic to the configs that change and those that stay."""


def repeated_resources(resources: Sequence[Resource]) -> set[tuple[int, str]]:
    """Resources that a request names more than once."""
    return duplicates((resource.resource_type, resource.resource_name) for resource in resources)


async def change_configs(
    broker: Broker, resource: Resource, repeated: set[tuple[int, str]], new_configs: NewConfigs, validate_only: bool
) -> None:
    """Applies a request's changes to one resource, all or none; raises the KafkaError that stands in the way."""
    if (resource.resource_type, resource.resource_name) in repeated:
        raise _bad_request("Each resource must appear at most once.")
    names = [config.name for config in resource.configs]
    if duplicates(names):
        raise _bad_request("Error due to duplicate config keys")
    if resource.resource_type != ResourceType.TOPIC:
        raise _bad_request(_why_fixed(broker, resource.resource_type, resource.resource_name, names))
    await _change_topic_configs(broker, resource.resource_name, new_configs, validate_only)


async def _change_topic_configs(broker: Broker, name: str, new_configs: NewConfigs, validate_only: bool) -> None:
    if not name:
        raise _bad_request("Default topic resources are not allowed.")
    check_topic_name(name)

    async def change(topic: Topic) -> None:
        changed = check_changed_configs(topic, *new_configs(topic))
        await check_tiering(broker, topic.configs, changed)
        if not validate_only and changed != topic.configs:
            await broker.store.catalogue.set_configs(topic, changed)

    await change_topic(broker, name, change)


def check_no_nulls(configs: Sequence[Change]) -> None:
    """Raises INVALID_REQUEST where a value is missing."""
    nulls = [config.name for config in configs if config.value is None]
    if nulls:
        raise _bad_request(f"Null value not supported for : {', '.join(nulls)}")


def _why_fixed(broker: Broker, resource_type: int, resource_name: str, names: list[str]) -> str:
    if resource_type == ResourceType.BROKER:
        node_id = broker.store.nodes.me.id
        if resource_name and resource_name != str(node_id):
            return f"Unexpected broker id, expected {node_id}, but received {resource_name}"
        settings = [BROKER_CONFIGS[name].option for name in names if name in BROKER_CONFIGS]
        instead = f"Start the broker with another {', '.join(settings)} instead" if settings else "See docs/settings.md"
        return f"Cannot update these configs dynamically: {', '.join(names)}. {instead} (flag, environment or file)."
    if resource_type == ResourceType.BROKER_LOGGER:
        return "Log levels cannot be changed dynamically. Start the broker with another log_level instead."
    if resource_type == ResourceType.CLIENT_METRICS:
        return "This broker takes no client metrics, so there are no subscriptions to change."
    if resource_type == ResourceType.GROUP:
        return "Groups have no configs of their own here: their members set the time-outs."
    return f"Unknown resource type {resource_type}"


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
