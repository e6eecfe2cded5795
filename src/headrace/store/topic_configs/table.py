"""Every topic config: Kafka's, and a few of our own.

Tools that create topics set configs unasked, so each config of Kafka 4 is accepted with the values that Kafka accepts.
A column of this table says which have an effect here; docs/topic-configs.md is generated from it by `make docs`.
"""

from __future__ import annotations

from headrace.store.topic_configs.keys import INT64_MAX, ConfigKey, ConfigType

CLEANUP_POLICY = "cleanup.policy"
COPIES = "min.insync.replicas"
TIERED = "remote.storage.enable"
TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"
FORMAT = "headrace.format"
LOG, STREAM = "log", "stream"
FOREIGN = "headrace.stream.foreign"
FOREIGN_AS_JSON, SKIP_FOREIGN = "json", "skip"
SEQUENCE_BITS = "headrace.stream.sequence.bits"
MOST_SEQUENCE_BITS = 22
"""An id of today fits 63 bits with 22 bits of sequence, until 2039."""
FIXED = (FORMAT, SEQUENCE_BITS)
"""Chosen when a topic is made: its offsets follow from them."""
TOPIC_ID = "headrace.topic.id"

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST


class TopicConfig(ConfigKey, frozen=True, kw_only=True):
    """A row of the table."""

    meaning: str
    has_effect: bool = False
    synonym: str = ""
    """Kafka's name for the broker's default."""
    is_read_only: bool = False


_ROWS = (
    TopicConfig(
        name=CLEANUP_POLICY, type=_LIST, default="delete",
        meaning="`delete` removes old records by retention.ms and retention.bytes. With `compact` every record needs a "
        "key, and the last record of each key is kept; with `compact,delete` retention applies too. Empty keeps "
        "everything.",
        has_effect=True, choices=("compact", "delete"), synonym="log.cleanup.policy"),
    TopicConfig(
        name="compression.gzip.level", type=_INT, default="-1",
        meaning="Gzip level when the broker compresses; it uses a fixed one here.",
        low=1, high=9, or_equal=-1, synonym="compression.gzip.level"),
    TopicConfig(
        name="compression.lz4.level", type=_INT, default="9",
        meaning="Lz4 level when the broker compresses; it uses a fixed one here.",
        low=1, high=17, synonym="compression.lz4.level"),
    TopicConfig(
        name="compression.type", type=_STRING, default="producer",
        meaning="`producer` keeps batches as sent. With any other value the broker recompresses every batch that uses "
        "another compression, which costs time on every produce. No effect in the format `stream`.",
        has_effect=True, choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonym="compression.type"),
    TopicConfig(
        name="compression.zstd.level", type=_INT, default="3",
        meaning="Zstd level when the broker compresses; it uses a fixed one here.",
        low=-131072, high=22, synonym="compression.zstd.level"),
    TopicConfig(
        name="delete.retention.ms", type=_LONG, default="86400000",
        meaning="How long a tombstone is kept after the first compaction that saw it.",
        has_effect=True, low=0, synonym="log.cleaner.delete.retention.ms"),
    TopicConfig(
        name="file.delete.delay.ms", type=_LONG, default="60000",
        meaning="Delay before a segment file is deleted; there are no files here.",
        low=0, synonym="log.segment.delete.delay.ms"),
    TopicConfig(
        name="flush.messages", type=_LONG, default=str(INT64_MAX),
        meaning="Records between two fsyncs; decided here by the store's setting `durability`.",
        low=1, synonym="log.flush.interval.messages"),
    TopicConfig(
        name="flush.ms", type=_LONG, default=str(INT64_MAX),
        meaning="Time between two fsyncs; decided here by the store's setting `durability`.",
        low=0, synonym="log.flush.interval.ms"),
    TopicConfig(
        name="follower.replication.throttled.replicas", type=_LIST, default="",
        meaning="Replicas with throttled replication; brokers do not replicate here.", is_throttle=True),
    TopicConfig(
        name="index.interval.bytes", type=_INT, default="4096",
        meaning="Bytes of log per index entry; decided here by the setting `index_interval_bytes`.",
        low=0, synonym="log.index.interval.bytes"),
    TopicConfig(
        name="leader.replication.throttled.replicas", type=_LIST, default="",
        meaning="Replicas with throttled replication; brokers do not replicate here.", is_throttle=True),
    TopicConfig(
        name="local.retention.bytes", type=_LONG, default="-2",
        meaning="Partition size in Redis above which the oldest records leave it, once they are in the lake; -2: same "
        "as retention.bytes. With remote.storage.enable.",
        has_effect=True, low=-2, synonym="log.local.retention.bytes"),
    TopicConfig(
        name="local.retention.ms", type=_LONG, default="-2",
        meaning="Age at which records leave Redis, once they are in the lake; -2: same as retention.ms. With "
        "remote.storage.enable.",
        has_effect=True, low=-2, synonym="log.local.retention.ms"),
    TopicConfig(
        name="max.compaction.lag.ms", type=_LONG, default=str(INT64_MAX),
        meaning="Longest time before a record is compacted.",
        has_effect=True, low=1, synonym="log.cleaner.max.compaction.lag.ms"),
    TopicConfig(
        name="max.message.bytes", type=_INT, default="1048588",
        meaning="Largest record batch, compressed.",
        has_effect=True, low=0, synonym="message.max.bytes"),
    TopicConfig(
        name="message.timestamp.after.max.ms", type=_LONG, default="3600000",
        meaning="How far a record's timestamp may be ahead of the broker's clock, with CreateTime.",
        has_effect=True, low=0, synonym="log.message.timestamp.after.max.ms"),
    TopicConfig(
        name="message.timestamp.before.max.ms", type=_LONG, default=str(INT64_MAX),
        meaning="How far a record's timestamp may be behind the broker's clock, with CreateTime.",
        has_effect=True, low=0, synonym="log.message.timestamp.before.max.ms"),
    TopicConfig(
        name=TIMESTAMP_TYPE, type=_STRING, default=CREATE_TIME,
        meaning="Whether records keep the producer's timestamp or get the broker's; in the format `stream` that of "
        "their id. There the default is `LogAppendTime`, so that lookups by time need only the ids.",
        has_effect=True, choices=(CREATE_TIME, APPEND_TIME), synonym="log.message.timestamp.type"),
    TopicConfig(
        name="min.cleanable.dirty.ratio", type=_DOUBLE, default="0.5",
        meaning="Fraction of a partition's bytes (in the format `stream`, entries) that must be new before it is "
        "compacted.",
        has_effect=True, low=0, high=1, synonym="log.cleaner.min.cleanable.ratio"),
    TopicConfig(
        name="min.compaction.lag.ms", type=_LONG, default="0",
        meaning="Shortest time before a record is compacted.",
        has_effect=True, low=0, synonym="log.cleaner.min.compaction.lag.ms"),
    TopicConfig(
        name=COPIES, type=_INT, default="1",
        meaning="Copies of a record, the Redis primary's included, before acks=all is answered and consumers see it. "
        "Redis replicas are copies, nodes are not; on a store that never had a replica it counts as 1.",
        has_effect=True, low=1, synonym=COPIES),
    TopicConfig(
        name="preallocate", type=_BOOLEAN, default="false",
        meaning="Whether a segment file is preallocated; there are no files here.",
        synonym="log.preallocate"),
    TopicConfig(
        name="remote.log.copy.disable", type=_BOOLEAN, default="false",
        meaning="Stops copying to remote storage; here the archive copies, so stop that instead."),
    TopicConfig(
        name="remote.log.delete.on.disable", type=_BOOLEAN, default="false",
        meaning="Must be `true` to turn remote.storage.enable off: records that are only in the lake then leave the "
        "topic. The table stays.",
        has_effect=True),
    TopicConfig(
        name=TIERED, type=_BOOLEAN, default="false",
        meaning="Old records leave Redis once they are in the lake (local.retention.ms, local.retention.bytes), and "
        "are read from there. Needs the setting `lake` and a reachable lake; not with `compact`, nor in the format "
        "`stream`.",
        has_effect=True),
    TopicConfig(
        name="retention.bytes", type=_LONG, default="-1",
        meaning="Partition size above which old records are deleted; below 0: no limit.",
        has_effect=True, synonym="log.retention.bytes"),
    TopicConfig(
        name="retention.ms", type=_LONG, default="604800000",
        meaning="Age at which records are deleted; -1: never.",
        has_effect=True, low=-1, synonym="log.retention.ms"),
    TopicConfig(
        name="segment.bytes", type=_INT, default=str(1 << 30),
        meaning="Size of a segment file; there are no segments here, and retention removes single entries.",
        low=1 << 20, synonym="log.segment.bytes"),
    TopicConfig(
        name="segment.index.bytes", type=_INT, default=str(10 << 20),
        meaning="Size of an index file; there are no files here.", low=4, synonym="log.index.size.max.bytes"),
    TopicConfig(
        name="segment.jitter.ms", type=_LONG, default="0",
        meaning="Random delay before a new segment; there are no segments here.", low=0, synonym="log.roll.jitter.ms"),
    TopicConfig(
        name="segment.ms", type=_LONG, default="604800000",
        meaning="Age at which a new segment is started; there are no segments here.", low=1, synonym="log.roll.ms"),
    TopicConfig(
        name="unclean.leader.election.enable", type=_BOOLEAN, default="false",
        meaning="Whether an out-of-sync replica may lead; the data is in the store, and any node may lead.",
        synonym="unclean.leader.election.enable"),
    TopicConfig(
        name=FORMAT, type=_STRING, default=LOG,
        meaning="How partitions are stored in Redis: `log` is one entry per batch, for Kafka clients only. `stream` is "
        "one entry per record, in fields that Redis code can read and write; offsets are derived from entry ids. "
        "Cannot be changed after creation.",
        has_effect=True, choices=(LOG, STREAM)),
    TopicConfig(
        name=FOREIGN, type=_STRING, default=FOREIGN_AS_JSON,
        meaning="In the format `stream`, how entries that Redis code wrote with other fields are delivered: `json` as "
        "a JSON object of all fields, `skip` not at all.",
        has_effect=True, choices=(FOREIGN_AS_JSON, SKIP_FOREIGN)),
    TopicConfig(
        name=SEQUENCE_BITS, type=_INT, default="10",
        meaning="In the format `stream`, the number of offset bits for the sequence of the entry's id; the bits above "
        "are its milliseconds. Cannot be changed after creation.",
        has_effect=True, low=0, high=MOST_SEQUENCE_BITS),
    TopicConfig(
        name=TOPIC_ID, type=_STRING, default="",
        meaning="The topic id in the form `top_...`; Kafka clients see the same id as a UUID. Read-only.",
        has_effect=True, is_read_only=True),
)  # fmt: skip

TOPIC_CONFIGS: dict[str, TopicConfig] = {row.name: row for row in _ROWS}
