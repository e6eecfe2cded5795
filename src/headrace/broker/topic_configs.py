"""What a topic's configs come to: checked when they are set, filled with defaults when they are shown or acted on.

Stored configs may come from another version of the broker: what this one does not know or cannot read is kept, shown
nowhere and acted on as if it were not set. Only what a client sets is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headrace.broker.config_keys import INT64_MAX, ConfigSource, ConfigType, invalid_config
from headrace.broker.options import BrokerOptions
from headrace.broker.topic_config_table import FIXED, TOPIC_CONFIGS, TOPIC_ID, TopicConfig
from headrace.store.catalogue import Topic
from headrace.store.formats import APPEND_TIME, TIMESTAMP_TYPE, default_timestamp_type, is_stream, is_tiered
from headrace.store.stream_compaction_state import CompactionPolicy
from headrace.wire.compression import Compression
from headrace.wire.errors import KafkaError

AS_THE_WHOLE = -2
"""A local retention that is the topic's retention."""
_CODEC_OF: dict[str, Compression] = {
    "uncompressed": "none",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "zstd": "zstd",
}


class TopicPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of a topic that the broker acts on, with the defaults filled in."""

    max_message_bytes: int
    is_stream: bool
    """Whether each record is an entry of its own."""
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: Compression | None
    """What each batch is compressed with; None: as the producer did."""
    compacts: bool
    deletes: bool
    """Whether retention removes old records."""
    compaction: CompactionPolicy
    allows_delete_records: bool
    retention_ms: int
    retention_bytes: int
    is_tiered: bool
    """Whether old records are left to the lake."""
    local_retention_ms: int
    local_retention_bytes: int


class ConfigValue(NamedTuple):
    """A config as DescribeConfigs shows it: the value in force first among its synonyms."""

    row: TopicConfig
    value: str
    source: ConfigSource
    synonyms: list[tuple[str, str, ConfigSource]]


def policy_of(configs: Mapping[str, str], options: BrokerOptions) -> TopicPolicy:
    """What a topic's own configs and the broker's defaults come to."""
    cleanup = _stored(configs, "cleanup.policy", "delete").split(",")
    retention_ms = _stored_int(configs, "retention.ms", options.log_retention_ms)
    retention_bytes = _stored_int(configs, "retention.bytes", options.log_retention_bytes)
    return TopicPolicy(
        max_message_bytes=_stored_int(configs, "max.message.bytes", options.message_max_bytes),
        is_stream=is_stream(configs),
        log_append_time=configs.get(TIMESTAMP_TYPE, default_timestamp_type(configs)) == APPEND_TIME,
        timestamp_before_max_ms=_stored_int(configs, "message.timestamp.before.max.ms", INT64_MAX),
        timestamp_after_max_ms=_stored_int(configs, "message.timestamp.after.max.ms", 3_600_000),
        compression=_CODEC_OF.get(configs.get("compression.type", "producer")),
        compacts="compact" in cleanup,
        # In the format `log`, where nothing is compacted, such a topic keeps everything.
        deletes="delete" in cleanup and ("compact" not in cleanup or is_stream(configs)),
        compaction=_compaction_policy(configs),
        allows_delete_records="delete" in cleanup,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        is_tiered=is_tiered(configs),
        local_retention_ms=_local(configs, "local.retention.ms", retention_ms),
        local_retention_bytes=_local(configs, "local.retention.bytes", retention_bytes),
    )


def _local(configs: Mapping[str, str], name: str, of_the_whole: int) -> int:
    found = _stored_int(configs, name, AS_THE_WHOLE)
    return of_the_whole if found == AS_THE_WHOLE else found


def _compaction_policy(configs: Mapping[str, str]) -> CompactionPolicy:
    return CompactionPolicy(
        min_lag_ms=_stored_int(configs, "min.compaction.lag.ms", 0),
        max_lag_ms=_stored_int(configs, "max.compaction.lag.ms", INT64_MAX),
        dirty_ratio=float(_stored(configs, "min.cleanable.dirty.ratio", "0.5")),
        delete_retention_ms=_stored_int(configs, "delete.retention.ms", 86_400_000),
    )


def _stored(configs: Mapping[str, str], name: str, default: str) -> str:
    """A stored value if this version would accept it."""
    if (value := configs.get(name)) is None:
        return default
    try:
        return TOPIC_CONFIGS[name].check(value)
    except KafkaError:
        return default


def _stored_int(configs: Mapping[str, str], name: str, default: int) -> int:
    return int(_stored(configs, name, str(default)))


def check_new_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a new topic as they are stored; INVALID_CONFIG if one is not right."""
    checked = {name: check_config(name, value) for name, value in configs.items()}
    check_together(checked)
    return checked


def check_config(name: str, value: str) -> str:
    """One value as it is stored; INVALID_CONFIG if the name or the value is not right."""
    row = TOPIC_CONFIGS.get(name)
    if row is None:
        raise invalid_config(f"Unknown topic config name: {name}")
    if row.is_read_only:
        raise invalid_config(f"{name} is read-only.")
    return row.check(value)


def check_together(configs: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG where two configs contradict each other."""
    shortest = _stored_int(configs, "min.compaction.lag.ms", 0)
    longest = _stored_int(configs, "max.compaction.lag.ms", INT64_MAX)
    if shortest > longest:
        raise invalid_config(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )


def check_changed_configs(topic: Topic, changes: Mapping[str, str | None], others: Mapping[str, str]) -> dict[str, str]:
    """A topic's configs after a change; None takes one back to its default, `others` are those that stay."""
    result = dict(others)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        elif name == TOPIC_ID and value == topic.ulid:
            continue  # what DescribeConfigs showed, sent back
        else:
            result[name] = check_config(name, value)
    for name in FIXED:
        default = TOPIC_CONFIGS[name].default
        if result.get(name, default) != topic.configs.get(name, default):
            raise invalid_config(f"{name} cannot be changed after the topic's creation; create a new topic.")
    check_together(result)
    return result


def is_list(name: str) -> bool:
    """Whether a config holds several values, to which one can be added."""
    return name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].type is ConfigType.LIST


def default_of(row: TopicConfig, options: BrokerOptions) -> str:
    """What a topic that does not set it gets."""
    return str(getattr(options, row.option)) if row.option else row.default


def describe_configs(
    configs: Mapping[str, str], options: BrokerOptions, topic_id: str = "", only: Iterable[str] | None = None
) -> list[ConfigValue]:
    """All configs of a topic, or those that were asked for, in the order of their names."""
    names = sorted(TOPIC_CONFIGS.keys() if only is None else TOPIC_CONFIGS.keys() & set(only))
    return [_describe(TOPIC_CONFIGS[name], configs, options, topic_id) for name in names]


def _describe(row: TopicConfig, configs: Mapping[str, str], options: BrokerOptions, topic_id: str) -> ConfigValue:
    if row.name == TOPIC_ID:
        return ConfigValue(row, topic_id, ConfigSource.DEFAULT_CONFIG, [])
    if row.name == TIMESTAMP_TYPE:
        row = msgspec.structs.replace(row, default=default_timestamp_type(configs))
    default = default_of(row, options)
    synonyms = []
    if row.name in configs:
        synonyms.append((row.name, _stored(configs, row.name, default), ConfigSource.TOPIC_CONFIG))
    if default != row.default:
        synonyms.append((row.synonym, default, ConfigSource.STATIC_BROKER_CONFIG))
    if row.synonym:
        synonyms.append((row.synonym, row.default, ConfigSource.DEFAULT_CONFIG))
    if not synonyms:
        return ConfigValue(row, default, ConfigSource.DEFAULT_CONFIG, [])
    _, value, source = synonyms[0]
    return ConfigValue(row, value, source, synonyms)
