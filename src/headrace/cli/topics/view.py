"""A topic as commands show it: ids, partitions with their offsets and sizes, configs.

Separate from the commands because it is assembled from several responses, and tables and JSON share it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from headrace.cli.unknown import PartitionTrouble, Reason, trouble_of
from headrace.client import Admin, Cluster, Transactions, UnsupportedApi
from headrace.client.admin import ConfigEntry, Missing, TopicInfo
from headrace.client.cluster import by_topic
from headrace.client.transactions import OpenTransaction
from headrace.store.cluster.identity import kafka_uuid, ulid
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headrace.wire.schema import ZERO_UUID
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

_TIERED, _TIERING = "remote.storage.enable", "headrace.tiering"
_LOCATOR = "headrace.topic.locator"
SET_FOR_TOPIC = "topic"
"""The source of a config that was set for the topic itself."""


class PartitionView(Struct, frozen=True, omit_defaults=True):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    start: int | None
    end: int | None
    """None if its store is away."""
    size_bytes: int | None
    trouble: Reason | None = None

    @property
    def records(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start


class TopicView(Struct, frozen=True):
    name: str
    id: str
    topic_id: str
    partitions: list[PartitionView]

    @property
    def records(self) -> int | None:
        """None if they are not known of every partition."""
        counts = [p.records for p in self.partitions]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def size_bytes(self) -> int | None:
        sizes = [p.size_bytes for p in self.partitions if p.size_bytes is not None]
        return sum(sizes) if sizes and not any(p.trouble for p in self.partitions) else None


class ConfigView(Struct, frozen=True):
    name: str
    value: str | None
    source: str
    read_only: bool


class TieringView(Struct, frozen=True):
    """The offsets of a tiered partition in Redis and in the lake."""

    partition: int
    log_start: int
    local_start: int
    lake_end: int | None
    trouble: str | None


class TopicDetail(TopicView, frozen=True, omit_defaults=True):
    """A topic with its configs: the non-default ones, or all."""

    configs: list[ConfigView]
    tiering: list[TieringView] = []
    """For tiered topics only."""
    open_transactions: list[OpenTransaction] = []
    locator: str | None = None
    """If the broker has organisations."""


class TopicListing(Struct, frozen=True, omit_defaults=True):
    """A topic in a list; `records` is null if some partitions are unknown now."""

    name: str
    id: str
    topic_id: str
    partitions: int
    records: int | None
    size_bytes: int | None
    unknown: list[PartitionTrouble] = []


def topic_id(bits: bytes) -> str:
    """`top_<ulid>`: the same bits as Kafka's id; empty if the broker has no topic ids."""
    return f"top_{ulid(bits)}" if bits != ZERO_UUID else ""


def listing(topic: TopicView, unknown: list[PartitionTrouble]) -> TopicListing:
    count = len(topic.partitions)
    return TopicListing(topic.name, topic.id, topic.topic_id, count, topic.records, topic.size_bytes, unknown)


def view_topics(cluster: Cluster, topics: Iterable[TopicInfo]) -> tuple[list[TopicView], Missing]:
    """These topics with the offsets of their partitions, in one request each, and the partitions that are away."""
    topics = list(topics)
    partitions = [(topic.name, p.index) for topic in topics for p in topic.partitions]
    admin = Admin(cluster)
    starts, missing = admin.known_offsets(dict.fromkeys(partitions, EARLIEST))
    ends, without_end = admin.known_offsets(dict.fromkeys(partitions, LATEST))
    missing |= without_end
    sizes = _sizes(cluster, partitions)
    views = [
        TopicView(
            name=topic.name,
            id=topic_id(topic.topic_id),
            topic_id=kafka_uuid(topic.topic_id) if topic.topic_id != ZERO_UUID else "",
            partitions=[
                PartitionView(
                    partition=p.index,
                    leader=p.leader,
                    leader_epoch=p.leader_epoch,
                    replicas=p.replicas,
                    isr=p.isr,
                    start=starts[key].offset if key in starts else None,
                    end=ends[key].offset if key in ends else None,
                    size_bytes=sizes.get(key),
                    trouble=trouble_of(missing[key]) if key in missing else None,
                )
                for p in topic.partitions
                for key in [(topic.name, p.index)]
            ],
        )
        for topic in topics
    ]
    return views, missing


def view_details(admin: Admin, topic: TopicView, *, all_configs: bool) -> TopicDetail:
    """The topic with its configs and, if it is tiered, its offsets in the lake."""
    entries = admin.describe_configs(topic.name)
    configs = view_configs(entries, everything=all_configs)
    is_tiered = any(entry.name == _TIERED and entry.value == "true" for entry in entries)
    asked = admin.describe_configs(topic.name, keys=[_LOCATOR, _TIERING] if is_tiered else [_LOCATOR])
    facts = {fact.name: fact.value for fact in asked if fact.value}
    tiering = msgspec.json.decode(facts.get(_TIERING, "[]"), type=list[TieringView])
    opened = _opened(admin.cluster, topic)
    locator = facts.get(_LOCATOR)
    return TopicDetail(topic.name, topic.id, topic.topic_id, topic.partitions, configs, tiering, opened, locator)


def _opened(cluster: Cluster, topic: TopicView) -> list[OpenTransaction]:
    """Its open transactions, if the brokers report them."""
    try:
        return Transactions(cluster).opened([(topic.name, p.partition) for p in topic.partitions])
    except (UnsupportedApi, KafkaError):
        return []  # optional, like sizes


def view_configs(entries: Iterable[ConfigEntry], *, everything: bool) -> list[ConfigView]:
    """The non-default configs, or all."""
    return [
        ConfigView(entry.name, None if entry.is_sensitive else entry.value, entry.source, entry.read_only)
        for entry in entries
        if everything or (entry.source == SET_FOR_TOPIC and not entry.read_only)
    ]


def _sizes(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The sizes of the partitions, if the brokers report them."""
    found: dict[TopicPartition, int] = {}
    try:
        for node_id, led in cluster.requests(partitions):
            topics = [DescribableLogDirTopic(name, indexes) for name, indexes in by_topic(led).items()]
            answer = cluster.node(node_id).send_for(DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
            for log_dir in answer.results:
                for topic in log_dir.topics:
                    for p in topic.partitions:
                        found[topic.name, p.partition_index] = p.partition_size
    except (UnsupportedApi, KafkaError):
        return {}  # sizes are optional
    return found
