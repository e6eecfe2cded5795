"""The broker's settings as Kafka's tools see them: under Kafka's names where there is one, all read-only.

A setting without a name in Kafka is shown as `headrace.` and its own name with dots.
"""

from __future__ import annotations

import msgspec

from headrace.broker.config_keys import ConfigSource, ConfigType
from headrace.broker.options import BrokerOptions

_KAFKA_NAMES = {
    "auto_create_topics": "auto.create.topics.enable",
    "connections_idle_ms": "connections.max.idle.ms",
    "connections_max": "max.connections",
    "default_partitions": "num.partitions",
    "delete_topics_enabled": "delete.topic.enable",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_sessions_max": "max.incremental.fetch.session.cache.slots",
    "frame_limit_bytes": "socket.request.max.bytes",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_max_session_timeout_ms": "group.max.session.timeout.ms",
    "group_max_size": "group.max.size",
    "group_min_session_timeout_ms": "group.min.session.timeout.ms",
    "log_retention_bytes": "log.retention.bytes",
    "log_retention_ms": "log.retention.ms",
    "message_max_bytes": "message.max.bytes",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_retention_check_ms": "offsets.retention.check.interval.ms",
    "offsets_retention_ms": "offsets.retention.ms",
    "request_budget_bytes": "queued.max.request.bytes",
    "retention_check_interval_ms": "log.retention.check.interval.ms",
}
"""Setting -> the config of a Kafka broker that means the same."""

_FIXED = {
    "broker.id": ConfigType.INT,
    "default.replication.factor": ConfigType.INT,
    "listeners": ConfigType.STRING,
    "log.cleanup.policy": ConfigType.LIST,
    "log.dirs": ConfigType.STRING,
    "min.insync.replicas": ConfigType.INT,
    "node.id": ConfigType.INT,
}


class BrokerConfig(msgspec.Struct, frozen=True):
    """One setting."""

    name: str
    option: str
    type: ConfigType
    default: str


class BrokerConfigValue(msgspec.Struct, frozen=True):
    """A config of the broker as DescribeConfigs shows it."""

    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    default: str | None
    documentation: str


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type_of(value: object) -> ConfigType:
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    return ConfigType.LONG if isinstance(value, int) else ConfigType.STRING


def _read_options() -> dict[str, BrokerConfig]:
    table = {}
    for option, default in msgspec.structs.asdict(BrokerOptions()).items():
        name = _KAFKA_NAMES.get(option, f"headrace.{option.replace('_', '.')}")
        table[name] = BrokerConfig(name, option, _type_of(default), _show(default))
    return table


BROKER_CONFIGS: dict[str, BrokerConfig] = _read_options()


def describe_broker(options: BrokerOptions, facts: dict[str, str]) -> list[BrokerConfigValue]:
    """All configs of this broker in the order of their names; `facts` are those that are no options."""
    found = [
        BrokerConfigValue(name, facts[name], type_, ConfigSource.STATIC_BROKER_CONFIG, None, "What this broker is.")
        for name, type_ in _FIXED.items()
    ]
    for config in BROKER_CONFIGS.values():
        value = _show(getattr(options, config.option))
        source = ConfigSource.DEFAULT_CONFIG if value == config.default else ConfigSource.STATIC_BROKER_CONFIG
        documentation = f"The setting {config.option} of headrace; docs/settings.md describes it."
        found.append(BrokerConfigValue(config.name, value, config.type, source, config.default, documentation))
    return sorted(found, key=lambda config: config.name)
