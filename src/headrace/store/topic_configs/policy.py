"""The policy that results from a topic's configs; store and broker both act on it.

Stored configs may come from another version of the broker: unknown or unreadable ones are kept, hidden, and treated as
not set. What a client sets is checked before it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.topic_configs.keys import INT64_MAX
from headrace.store.topic_configs.table import (
    APPEND_TIME,
    CLEANUP_POLICY,
    COPIES,
    FOREIGN,
    FORMAT,
    SEQUENCE_BITS,
    SKIP_FOREIGN,
    STREAM,
    TIERED,
    TIMESTAMP_TYPE,
    TOPIC_CONFIGS,
    TopicConfig,
)
from headrace.wire.compression import Compression
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic
    from headrace.wire.batch import BatchHeader

AS_THE_WHOLE = -2
"""A local retention that is the topic's retention."""
_MOST_MADE = 20_000
"""A request that is late may have one made of a topic that is gone."""
_CODEC_OF: dict[str, Compression] = {
    "uncompressed": "none",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "zstd": "zstd",
}


class TopicPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of a topic that something here acts on, with the defaults filled in."""

    max_message_bytes: int
    is_stream: bool
    """Whether each record is an entry of its own."""
    sequence_bits: int
    """Offset bits for the id's sequence in the format `stream`; the milliseconds are above them."""
    skips_foreign: bool
    """Whether a stream's entries with fields of their own are left out, rather than delivered as JSON."""
    log_append_time: bool
    """Whether a record's time is that of its append, in a stream its id's; otherwise it is the producer's."""
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: Compression | None
    """Compression of every batch; None: as sent by the producer."""
    looks_inside: bool
    """Whether a produced batch is more to the topic than a header and bytes."""
    compacts: bool
    """Whether each record needs a key, and only the last record of each key stays."""
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
    replicas: int
    """Replicas that have to have a record: it is acknowledged (acks=all) and read by consumers only then."""

    def newest_trusted_ms(self, now_ms: int) -> int:
        """Up to which time a plausible header says enough about its records; below 0: none does."""
        is_bounded = self.timestamp_before_max_ms != INT64_MAX and not self.log_append_time
        return -1 if is_bounded else now_ms + self.timestamp_after_max_ms

    def must_check_times(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the records' times have to be read: for nearly all batches the header says that they are good."""
        if self.log_append_time:
            return False
        is_bounded = self.timestamp_before_max_ms != INT64_MAX
        is_in_time = header.max_timestamp <= now_ms + self.timestamp_after_max_ms
        return is_bounded or not is_in_time or not header.has_plausible_times


def policy_of(configs: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> TopicPolicy:
    """The policy from a topic's own configs; `defaults` are this broker's, by Kafka's names."""
    behind = defaults or {}

    def text(name: str) -> str:
        return stored_value(configs, name, default_of(TOPIC_CONFIGS[name], configs, behind))

    def number(name: str) -> int:
        return int(text(name))

    cleanup = text(CLEANUP_POLICY).split(",")
    compression = _CODEC_OF.get(text("compression.type"))
    retention_ms, retention_bytes = number("retention.ms"), number("retention.bytes")
    local_ms, local_bytes = number("local.retention.ms"), number("local.retention.bytes")
    return TopicPolicy(
        max_message_bytes=number("max.message.bytes"),
        is_stream=is_stream(configs),
        # As it is stored, whatever this version would accept: offsets were given out by it.
        sequence_bits=int(configs.get(SEQUENCE_BITS, TOPIC_CONFIGS[SEQUENCE_BITS].default)),
        skips_foreign=text(FOREIGN) == SKIP_FOREIGN,
        log_append_time=text(TIMESTAMP_TYPE) == APPEND_TIME,
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        compression=compression,
        looks_inside="compact" in cleanup or is_stream(configs) or compression is not None,
        compacts="compact" in cleanup,
        deletes="delete" in cleanup,
        compaction=CompactionPolicy(
            min_lag_ms=number("min.compaction.lag.ms"),
            max_lag_ms=number("max.compaction.lag.ms"),
            dirty_ratio=float(text("min.cleanable.dirty.ratio")),
            delete_retention_ms=number("delete.retention.ms"),
        ),
        allows_delete_records="delete" in cleanup,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        is_tiered=is_tiered(configs),
        local_retention_ms=retention_ms if local_ms == AS_THE_WHOLE else local_ms,
        local_retention_bytes=retention_bytes if local_bytes == AS_THE_WHOLE else local_bytes,
        replicas=number(COPIES) - 1,
    )


def is_stream(configs: Mapping[str, str]) -> bool:
    """Whether a topic keeps one entry per record."""
    return configs.get(FORMAT) == STREAM


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Whether a topic's old records are left to the lake."""
    return configs.get(TIERED) == "true" and not is_stream(configs)


def stored_value(configs: Mapping[str, str], name: str, default: str) -> str:
    """A stored value if this version would accept it."""
    if (value := configs.get(name)) is None:
        return default
    try:
        return TOPIC_CONFIGS[name].check(value)
    except KafkaError:
        return default


def default_of(row: TopicConfig, configs: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """The value for a topic that does not set it."""
    own = own_default(row, configs)
    return defaults.get(row.synonym, own) if follows_broker(row, configs) else own


def own_default(row: TopicConfig, configs: Mapping[str, str]) -> str:
    """The default without any settings: for streams LogAppendTime, so that lookups by time use only the ids."""
    return APPEND_TIME if row.name == TIMESTAMP_TYPE and is_stream(configs) else row.default


def follows_broker(row: TopicConfig, configs: Mapping[str, str]) -> bool:
    """Whether a broker's default counts: how a stream is read, and what the lake may hold, the topic alone decides."""
    is_its_own = is_stream(configs) and row.name in (CLEANUP_POLICY, TIMESTAMP_TYPE)
    return not (is_its_own or (is_tiered(configs) and row.name == CLEANUP_POLICY))


class TopicPolicies:
    """The policies of the topics, each made once."""

    def __init__(self) -> None:
        self._defaults: Mapping[str, str] = {}
        self._made: dict[str, tuple[Topic, TopicPolicy]] = {}
        self.revision = 0
        """Rises whenever the defaults change, and any topic's policy with them."""
        self.replicas = 0
        """The default for topics, which also applies to groups and other state of the brokers."""

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Adds the broker's settings as defaults for topics."""
        self._defaults = defaults
        self.revision += 1
        self.replicas = int(defaults.get(COPIES, "1")) - 1
        self._made.clear()

    def of(self, topic: Topic) -> TopicPolicy:
        """The policy from a topic's configs and the broker's defaults."""
        made = self._made.get(topic.id)
        if made is None or made[0] is not topic:
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            made = self._made[topic.id] = (topic, policy_of(topic.configs, self._defaults))
        return made[1]

    def forget(self, topic: Topic) -> None:
        """The topic was deleted."""
        self._made.pop(topic.id, None)
