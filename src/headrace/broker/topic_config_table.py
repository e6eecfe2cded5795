"""Every topic config: Kafka's, and a few of our own.

Tools that create topics set configs without asking, so each config of Kafka 4 is accepted with the values that Kafka
takes. Which of them do something here is a column of this table; docs/topic-configs.md is made from it by `make docs`.
"""

from __future__ import annotations

import sys

from headrace.broker.config_keys import INT64_MAX, ConfigKey, ConfigType
from headrace.store.formats import (
    DEFAULT_SEQUENCE_BITS,
    FOREIGN,
    FOREIGN_CHOICES,
    FORMAT,
    LOG,
    MOST_SEQUENCE_BITS,
    SEQUENCE_BITS,
    STREAM,
)

FIXED = (FORMAT, SEQUENCE_BITS)
"""Chosen when a topic is made: its offsets follow from them."""
TOPIC_ID = "headrace.topic.id"

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST


class TopicConfig(ConfigKey, frozen=True, kw_only=True):
    """A row of the table."""

    meaning: str
    has_effect: bool = False
    option: str = ""
    """The broker's setting that is its default."""
    synonym: str = ""
    """Kafka's name for the broker's default."""
    is_read_only: bool = False


_ROWS = (
    TopicConfig(
        name="cleanup.policy", type=_LIST, default="delete",
        meaning="`delete` removes old records by retention.ms and retention.bytes. A topic with `compact` needs a key "
        "on each record; in the format `stream` the last record of each key stays, and with `compact,delete` "
        "retention applies too; in the format `log` it keeps everything, and retention does not touch it. Empty keeps "
        "everything.",
        has_effect=True, choices=("compact", "delete"), synonym="log.cleanup.policy"),
    TopicConfig(
        name="compression.gzip.level", type=_INT, default="-1",
        meaning="Level of gzip where the broker compresses; it uses its own.",
        low=1, high=9, or_equal=-1, synonym="compression.gzip.level"),
    TopicConfig(
        name="compression.lz4.level", type=_INT, default="9",
        meaning="Level of lz4 where the broker compresses; it uses its own.",
        low=1, high=17, synonym="compression.lz4.level"),
    TopicConfig(
        name="compression.type", type=_STRING, default="producer",
        meaning="`producer` keeps batches as they come. Any other value has the broker compress each batch again that "
        "comes in another form, which costs it time on every produce. Without an effect in the format `stream`.",
        has_effect=True, choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonym="compression.type"),
    TopicConfig(
        name="compression.zstd.level", type=_INT, default="3",
        meaning="Level of zstd where the broker compresses; it uses its own.",
        low=-131072, high=22, synonym="compression.zstd.level"),
    TopicConfig(
        name="delete.retention.ms", type=_LONG, default="86400000",
        meaning="How long a tombstone stays after the compaction that first passed it; in the format `stream`.",
        has_effect=True, low=0, synonym="log.cleaner.delete.retention.ms"),
    TopicConfig(
        name="file.delete.delay.ms", type=_LONG, default="60000",
        meaning="Delay before a segment's file is removed; there are no files here.",
        low=0, synonym="log.segment.delete.delay.ms"),
    TopicConfig(
        name="flush.messages", type=_LONG, default=str(INT64_MAX),
        meaning="Records between two fsyncs; the setting `durability` of the store decides that here.",
        low=1, synonym="log.flush.interval.messages"),
    TopicConfig(
        name="flush.ms", type=_LONG, default=str(INT64_MAX),
        meaning="Time between two fsyncs; the setting `durability` of the store decides that here.",
        low=0, synonym="log.flush.interval.ms"),
    TopicConfig(
        name="follower.replication.throttled.replicas", type=_LIST, default="",
        meaning="Replicas that copy slowly; brokers do not copy from each other here.", is_throttle=True),
    TopicConfig(
        name="index.interval.bytes", type=_INT, default="4096",
        meaning="Log between two entries of the index; the setting `index_interval_bytes` decides that here.",
        low=0, synonym="log.index.interval.bytes"),
    TopicConfig(
        name="leader.replication.throttled.replicas", type=_LIST, default="",
        meaning="Replicas that are copied from slowly; brokers do not copy from each other here.", is_throttle=True),
    TopicConfig(
        name="local.retention.bytes", type=_LONG, default="-2",
        meaning="Size of a partition in Redis above which the oldest records leave it, once the lake has them; -2: as "
        "retention.bytes. With remote.storage.enable.",
        has_effect=True, low=-2, synonym="log.local.retention.bytes"),
    TopicConfig(
        name="local.retention.ms", type=_LONG, default="-2",
        meaning="Age at which records leave Redis, once the lake has them; -2: as retention.ms. With "
        "remote.storage.enable.",
        has_effect=True, low=-2, synonym="log.local.retention.ms"),
    TopicConfig(
        name="max.compaction.lag.ms", type=_LONG, default=str(INT64_MAX),
        meaning="Longest wait of a record for compaction; in the format `stream`.",
        has_effect=True, low=1, synonym="log.cleaner.max.compaction.lag.ms"),
    TopicConfig(
        name="max.message.bytes", type=_INT, default="1048588",
        meaning="Largest record batch, as it is compressed.",
        has_effect=True, low=0, option="message_max_bytes", synonym="message.max.bytes"),
    TopicConfig(
        name="message.timestamp.after.max.ms", type=_LONG, default="3600000",
        meaning="How far a record's time may lie ahead of the broker's, with CreateTime.",
        has_effect=True, low=0, synonym="log.message.timestamp.after.max.ms"),
    TopicConfig(
        name="message.timestamp.before.max.ms", type=_LONG, default=str(INT64_MAX),
        meaning="How far a record's time may lie behind the broker's, with CreateTime.",
        has_effect=True, low=0, synonym="log.message.timestamp.before.max.ms"),
    TopicConfig(
        name="message.timestamp.type", type=_STRING, default="CreateTime",
        meaning="Whether records keep the producer's time or get the broker's; in the format `stream` that of their "
        "id. There the default is `LogAppendTime`, so that look-ups by time come straight from the ids.",
        has_effect=True, choices=("CreateTime", "LogAppendTime"), synonym="log.message.timestamp.type"),
    TopicConfig(
        name="min.cleanable.dirty.ratio", type=_DOUBLE, default="0.5",
        meaning="Share of the entries that must be new before a partition is compacted; in the format `stream`.",
        has_effect=True, low=0, high=1, synonym="log.cleaner.min.cleanable.ratio"),
    TopicConfig(
        name="min.compaction.lag.ms", type=_LONG, default="0",
        meaning="Shortest wait of a record for compaction; in the format `stream`.",
        has_effect=True, low=0, synonym="log.cleaner.min.compaction.lag.ms"),
    TopicConfig(
        name="min.insync.replicas", type=_INT, default="1",
        meaning="Replicas that must have a record before acks=all is answered. A partition has one replica here, the "
        "store, and each acknowledged record is in it whatever this says.",
        low=1, synonym="min.insync.replicas"),
    TopicConfig(
        name="preallocate", type=_BOOLEAN, default="false",
        meaning="Whether a segment's file gets its full size at once; there are no files here.",
        synonym="log.preallocate"),
    TopicConfig(
        name="remote.log.copy.disable", type=_BOOLEAN, default="false",
        meaning="Stops copying to the lake; here the archive copies, so stop that instead."),
    TopicConfig(
        name="remote.log.delete.on.disable", type=_BOOLEAN, default="false",
        meaning="`true` is asked for when remote.storage.enable is turned off: records that are in the lake alone then "
        "leave the topic. The table stays.",
        has_effect=True),
    TopicConfig(
        name="remote.storage.enable", type=_BOOLEAN, default="false",
        meaning="Old records leave Redis once the lake has them (local.retention.ms, local.retention.bytes), and are "
        "read from there. Needs a broker with `lake` set and a lake that answers; not with `compact`, nor in the "
        "format `stream`.",
        has_effect=True),
    TopicConfig(
        name="retention.bytes", type=_LONG, default="-1",
        meaning="Size of a partition above which old records go; below 0: any size.",
        has_effect=True, option="log_retention_bytes", synonym="log.retention.bytes"),
    TopicConfig(
        name="retention.ms", type=_LONG, default="604800000",
        meaning="Age at which records go; -1: never.",
        has_effect=True, low=-1, option="log_retention_ms", synonym="log.retention.ms"),
    TopicConfig(
        name="segment.bytes", type=_INT, default=str(1 << 30),
        meaning="Size of a segment's file; there are no segments here, and retention removes single entries.",
        low=1 << 20, synonym="log.segment.bytes"),
    TopicConfig(
        name="segment.index.bytes", type=_INT, default=str(10 << 20),
        meaning="Size of an index file; there are no files here.", low=4, synonym="log.index.size.max.bytes"),
    TopicConfig(
        name="segment.jitter.ms", type=_LONG, default="0",
        meaning="Random delay before a new segment; there are no segments here.", low=0, synonym="log.roll.jitter.ms"),
    TopicConfig(
        name="segment.ms", type=_LONG, default="604800000",
        meaning="Age at which a new segment is begun; there are no segments here.", low=1, synonym="log.roll.ms"),
    TopicConfig(
        name="unclean.leader.election.enable", type=_BOOLEAN, default="false",
        meaning="Whether a replica that lags may lead; the store has the only copy, and any broker may lead.",
        synonym="unclean.leader.election.enable"),
    TopicConfig(
        name=FORMAT, type=_STRING, default=LOG,
        meaning="How the partitions lie in Redis: `log` is one entry per batch, for Kafka clients alone. `stream` is "
        "one entry per record, in fields that Redis code reads and writes too; offsets are then made of their ids. "
        "It cannot be changed after creation.",
        has_effect=True, choices=(LOG, STREAM)),
    TopicConfig(
        name=FOREIGN, type=_STRING, default=FOREIGN_CHOICES[0],
        meaning="In the format `stream`, what becomes of entries that Redis code wrote with fields of its own: `json` "
        "delivers a JSON object of all fields, `skip` leaves them out.",
        has_effect=True, choices=FOREIGN_CHOICES),
    TopicConfig(
        name=SEQUENCE_BITS, type=_INT, default=str(DEFAULT_SEQUENCE_BITS),
        meaning="In the format `stream`, how many bits of an offset are the sequence of the entry's id; those above "
        "are its milliseconds. It cannot be changed after creation.",
        has_effect=True, low=0, high=MOST_SEQUENCE_BITS),
    TopicConfig(
        name=TOPIC_ID, type=_STRING, default="",
        meaning="The topic's id in the form `top_...`, the same one that Kafka's clients see as a UUID. Read-only.",
        has_effect=True, is_read_only=True),
)  # fmt: skip

TOPIC_CONFIGS: dict[str, TopicConfig] = {row.name: row for row in _ROWS}

_DOCS_HEAD = """\
# Topic configs

Set at creation, or later with AlterConfigs and IncrementalAlterConfigs (`headrace topics create --config`,
`headrace topics alter`, `kafka-configs`). A value that Kafka refuses is refused here with the same words. A default
that is a setting of the broker follows that setting. A name that Kafka 4 does not know is an error.

This page is made from the table in `src/headrace/broker/topic_config_table.py` by `make docs`.
"""
_SECTIONS = (
    (True, "Configs that have an effect", "what it does"),
    (False, "Configs that are accepted without an effect", "what it does in Kafka, and why not here"),
)


def render_docs() -> str:
    """docs/topic-configs.md, from the table."""
    lines = [_DOCS_HEAD.rstrip()]
    for has_effect, title, column in _SECTIONS:
        lines += ["", f"## {title}", "", f"| config | type | default | values | {column} |", "|---|---|---|---|---|"]
        lines += [_docs_row(row) for row in TOPIC_CONFIGS.values() if row.has_effect is has_effect]
    return "\n".join(lines) + "\n"


def _docs_row(row: TopicConfig) -> str:
    default = f"`{row.default}`" if row.default else "empty"
    if row.option:
        default += f" (setting `{row.option}`)"
    values = "" if row.is_read_only else row.valid_values
    return f"| `{row.name}` | {row.type.name.lower()} | {default} | {values} | {row.meaning} |"


if __name__ == "__main__":
    sys.stdout.write(render_docs())
