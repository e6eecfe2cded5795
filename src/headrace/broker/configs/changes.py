"""Changing configs: the common part of AlterConfigs and IncrementalAlterConfigs.

Topics keep their configs in the catalogue; those of brokers and groups are stored next to it. Either way a change is
derived from the current value and replaces only that, so no node undoes another's. For anything else the response says
what to do instead.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from headrace.broker.administration import change_topic, duplicates, step_aside
from headrace.broker.configs.broker import FOR_ALL, check_broker_changes
from headrace.broker.configs.broker_table import BROKER_CONFIGS
from headrace.broker.configs.groups import check_group_changes
from headrace.broker.configs.layers import value_in
from headrace.broker.configs.topics import check_changed_configs, is_list
from headrace.broker.tiering.rules import check_tiering
from headrace.broker.topics.copies import warn_of_copies
from headrace.broker.topics.names import check_topic_name
from headrace.security.acls import Operation
from headrace.security.acls import ResourceType as AclType
from headrace.store.cluster.configs import Configs, of_broker, of_group
from headrace.store.topic_configs.keys import ConfigType, invalid_config
from headrace.store.topic_configs.policy import default_of
from headrace.store.topic_configs.table import COPIES, FIXED, TOPIC_CONFIGS
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.broker.broker import Broker
    from headrace.store.cluster.catalogue import Topic

_GROUPS_MAX = 10_000
"""Groups with configs of their own: every node keeps a copy of all."""


class ConfigResourceType(IntEnum):
    """Types of resources with configs."""

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


class Configured(ABC):
    """The configs of a resource, and checks of changes to them."""

    def __init__(self, present: Mapping[str, str]) -> None:
        self.present = present
        self.kept: Mapping[str, str] = {}
        """Configs that AlterConfigs, which replaces all, keeps although it does not name them."""

    @abstractmethod
    def list_value(self, name: str, operation: str) -> str:
        """The current value of a list config to append to or subtract from; an error for any other config."""

    @abstractmethod
    def check(self, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
        """The configs after a change of some; raises if they are not allowed."""


NewConfigs = Callable[[Configured], tuple[dict[str, str | None], Mapping[str, str]]]
"""From what is there to the configs that change and those that stay."""


def repeated_resources(resources: Sequence[Resource]) -> set[tuple[int, str]]:
    """Resources that a request names more than once."""
    return duplicates((resource.resource_type, resource.resource_name) for resource in resources)


async def change_configs(
    access: Access, resource: Resource, repeated: set[tuple[int, str]], new_configs: NewConfigs, validate_only: bool
) -> None:
    """Applies a request's changes to one resource, all or none; raises the KafkaError that stands in the way."""
    broker, name = access.broker, resource.resource_name
    if (resource.resource_type, name) in repeated:
        raise _bad_request("Each resource must appear at most once.")
    if duplicates(config.name for config in resource.configs):
        raise _bad_request("Error due to duplicate config keys")
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            await _change_topic(access, name, new_configs, validate_only)
        case ConfigResourceType.BROKER:
            stored = access.broker_configs(Operation.ALTER_CONFIGS)
            _check_node(broker, name)
            await _change_stored(access, stored, of_broker(name), _OfBroker(broker, name), new_configs, validate_only)
        case ConfigResourceType.GROUP:
            configs = access.group_configs(Operation.ALTER_CONFIGS, name)
            if not name:
                raise _bad_request("Default group resources are not allowed.")
            await _change_stored(access, configs, of_group(name), _OfGroup(configs, name), new_configs, validate_only)
        case other:
            access.check_all_tenants(Operation.ALTER_CONFIGS)
            raise _bad_request(_why_fixed(other))


async def _change_topic(access: Access, name: str, new_configs: NewConfigs, validate_only: bool) -> None:
    access.check(Operation.ALTER_CONFIGS, AclType.TOPIC, name)
    if not name:
        raise _bad_request("Default topic resources are not allowed.")
    check_topic_name(name)

    async def change(topic: Topic) -> None:
        configured = _OfTopic(access.broker, topic)
        changed = configured.check(*new_configs(configured))
        await check_tiering(access.broker, topic.configs, changed)
        if not validate_only and changed != topic.configs:
            await access.set_topic_configs(topic, changed)
            if COPIES in changed and changed[COPIES] != topic.configs.get(COPIES):
                await warn_of_copies(access.broker, name, int(changed[COPIES]) - 1)

    await change_topic(access, Operation.ALTER_CONFIGS, name, change)


async def _change_stored(
    access: Access, stored: Configs, key: str, configured: Configured, new_configs: NewConfigs, validate_only: bool
) -> None:
    """Again, if another node changed the same ones at the same moment."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + access.broker.options.store_wait_ms / 1000
    while True:
        configured.present = stored.get(key)
        changed = configured.check(*new_configs(configured))
        if validate_only or changed == configured.present:
            return
        if await stored.replace(key, changed):
            access.note("changed configs", of=key, configs=changed)
            return
        if clock() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The configs were changed concurrently.")
        await step_aside()


class _OfTopic(Configured):
    def __init__(self, broker: Broker, topic: Topic) -> None:
        super().__init__(topic.configs)
        # What was chosen at creation: leaving it out does not mean to change it.
        self.kept = {name: topic.configs[name] for name in FIXED if name in topic.configs}
        self._broker = broker
        self._topic = topic

    def list_value(self, name: str, operation: str) -> str:
        if not is_list(name):
            raise _no_list(name, operation)
        default = default_of(TOPIC_CONFIGS[name], self.present, self._broker.configs.topic_defaults)
        return self.present.get(name, default)

    def check(self, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
        return check_changed_configs(self._topic, changes, others)


class _OfBroker(Configured):
    """The configs of one broker, or of all with the empty name."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__({})
        self._layers = broker.configs.layers if name != FOR_ALL else broker.configs.layers[1:]
        self._name = name

    def list_value(self, name: str, operation: str) -> str:
        row = BROKER_CONFIGS.get(name)
        if row is None:
            raise invalid_config(f"Unknown config name: {name}")
        if row.type is not ConfigType.LIST:
            raise invalid_config(f"Config value {operation.lower()} is not allowed for config key: {name}")
        return self.present.get(name, value_in(self._layers, name, row.default))

    def check(self, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
        return check_broker_changes(self._name, changes, others)


class _OfGroup(Configured):
    def __init__(self, configs: Configs, name: str) -> None:
        super().__init__({})
        self._configs = configs
        self._name = name

    def list_value(self, name: str, operation: str) -> str:
        raise _no_list(name, operation)

    def check(self, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
        result = check_group_changes(changes, others)
        if result and not self.present and len(self._configs.groups()) >= _GROUPS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{_GROUPS_MAX} groups have configs; no more can.")
        return result


def check_no_nulls(configs: Sequence[Change]) -> None:
    """Raises INVALID_REQUEST where a value is missing."""
    nulls = [config.name for config in configs if config.value is None]
    if nulls:
        raise _bad_request(f"Null value not supported for : {', '.join(nulls)}")


def _check_node(broker: Broker, name: str) -> None:
    """A broker changes its own configs, and those of all."""
    me = broker.store.nodes.me.id
    if name == FOR_ALL:
        return
    if not name.isdecimal():
        raise _bad_request(f"Node id must be an integer, but it is: {name}")
    if int(name) != me:
        raise _bad_request(f"Unexpected broker id, expected {me}, but received {name}")


def _no_list(name: str, operation: str) -> KafkaError:
    return invalid_config(f"Can't {operation} to key {name} because its type is not LIST.")


def _why_fixed(resource_type: int) -> str:
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        return "Log levels cannot be changed dynamically. Start the broker with another log_level instead."
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return "This broker does not collect client metrics, so there are no subscriptions to change."
    return f"Unknown resource type {resource_type}"


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
