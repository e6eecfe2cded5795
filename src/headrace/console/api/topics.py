"""Topics: a page of the list, and one topic in detail."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from headrace.client import Admin, Cluster, UnsupportedApi
from headrace.client.admin import TOPIC, TopicInfo
from headrace.client.cluster import by_topic
from headrace.console.endpoints import ApiQuestion, page_of
from headrace.console.errors import as_api_error
from headrace.console.facts import CACHED, TIERING, read_fact, read_fact_of_node
from headrace.console.facts import STREAM as STREAM_FACT
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headrace.wire.schema import ZERO_UUID
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

FORMAT, TIERED = "headrace.format", "remote.storage.enable"
STREAM = "stream"
PAGE_SIZE = 50
_PARTITIONS_MAX = 2_000
"""Of one page of the list: topics beyond have no numbers."""
_LEADERS_MAX = 32
_CONFIGS_AT_ONCE = 2_000


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in the list. Unknown numbers are null."""

    name: str
    partitions: int
    is_internal: bool
    format: str | None
    records: int | None
    size_bytes: int | None
    records_per_s: float | None
    bytes_per_s: float | None
    trouble: str | None = None
    """Why numbers are not known now."""


class TopicList(msgspec.Struct, frozen=True):
    topics: list[TopicRow]
    total: int
    page: int
    pages: int


class PartitionShown(msgspec.Struct, frozen=True):
    """A partition, and where its records are: from log start to local start only in the lake, from there in Redis.

    Offsets are text, because those of format `stream` exceed JavaScript's largest integer, 2^53.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log_start: str
    local_start: str
    end: str
    lake_end: str | None
    cached_from: str | None
    """Records from here on are also in the leader's memory."""
    size_bytes: int | None
    trouble: str | None


class ConfigShown(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: str
    differs: bool
    """Whether it was set for this topic."""
    read_only: bool
    documentation: str | None


class TopicShown(msgspec.Struct, frozen=True):
    name: str
    id: str | None
    is_internal: bool
    format: str | None
    is_tiered: bool
    records: int | None
    size_bytes: int | None
    records_per_s: float | None
    bytes_per_s: float | None
    partitions: list[PartitionShown]
    configs: list[ConfigShown]


def list_topics(cluster: Cluster, question: ApiQuestion) -> TopicList:
    """A page of the topics whose name contains the search text."""
    search, internal = question.text("search").lower(), question.flag("internal")
    found = [
        topic
        for topic in all_topics(cluster, question)
        if (internal or not _is_hidden(topic)) and search in topic.name.lower()
    ]
    page = page_of(len(found), question.number("page", 1, 1, 1_000_000), PAGE_SIZE)
    return TopicList(_rows(cluster, question, found[page.first : page.last]), len(found), page.page, page.pages)


def all_topics(cluster: Cluster, question: ApiQuestion) -> list[TopicInfo]:
    """The topics visible to the visitor, briefly cached."""
    return question.state.kept.get(question.visitor.token, "topics", Admin(cluster).list_topics)


def _is_hidden(topic: TopicInfo) -> bool:
    return topic.is_internal or topic.name.startswith("__")


def _rows(cluster: Cluster, question: ApiQuestion, topics: list[TopicInfo]) -> list[TopicRow]:
    partitions = [(topic.name, p.index) for topic in topics for p in topic.partitions][:_PARTITIONS_MAX]
    starts = offsets_of(cluster, partitions, EARLIEST)
    known_ends, missing = Admin(cluster).known_offsets(dict.fromkeys(partitions, LATEST))
    ends = {key: one.offset for key, one in known_ends.items()}
    sizes, formats = sizes_of(cluster, partitions), configs_of(cluster, [topic.name for topic in topics], FORMAT)
    rows = []
    for topic in topics:
        keys = [(topic.name, p.index) for p in topic.partitions]
        known = all(key in ends and key in starts for key in keys)
        form = formats.get(topic.name)
        end = sum(ends[key] for key in keys) if known else None
        records = end - sum(starts[key] for key in keys) if end is not None and form != STREAM else None
        rates = _rates(question, topic.name, end if form != STREAM else None)
        trouble = trouble_with(next((missing[key] for key in keys if key in missing), None))
        weighed = [sizes[key] for key in keys if key in sizes]
        size = sum(weighed) if weighed and trouble is None else None
        rows.append(TopicRow(topic.name, len(keys), _is_hidden(topic), form, records, size, *rates, trouble))
    return rows


def _rates(question: ApiQuestion, topic: str, end: int | None) -> tuple[float | None, float | None]:
    """Records and bytes per second: from the nodes' metrics, or else from end offsets seen earlier."""
    series, organisation = question.state.series, question.visitor.organisation
    if question.state.settings.node_sockets:
        return series.rate(("records_in", organisation, topic)), series.rate(("bytes_in", organisation, topic))
    if end is not None:
        series.add(("end", organisation, topic), time.time(), end)
    return series.rate(("end", organisation, topic)), None


def show_topic(cluster: Cluster, question: ApiQuestion) -> TopicShown:
    name = question.path["topic"]
    admin = Admin(cluster)
    topic = admin.describe_topic(name)
    keys = [(name, p.index) for p in topic.partitions]
    starts, sizes = offsets_of(cluster, keys, EARLIEST), sizes_of(cluster, keys)
    known_ends, missing = admin.known_offsets(dict.fromkeys(keys, LATEST))
    ends = {key: one.offset for key, one in known_ends.items()}
    entries = admin.describe_configs(name, documentation=True)
    values = {entry.name: entry.value for entry in entries}
    form, is_tiered = values.get(FORMAT), values.get(TIERED) == "true"
    tiering = tiering_of(cluster, name) if is_tiered else {}
    cached = _cached(cluster, topic)
    partitions = []
    for p in topic.partitions:
        key = name, p.index
        start = starts.get(key, -1)
        tier = tiering.get(p.index)
        partitions.append(
            PartitionShown(
                p.index, p.leader, p.leader_epoch, p.replicas, p.isr, str(start),
                str(max(start, tier.local_start) if tier else start), str(ends.get(key, -1)),
                _text(tier.lake_end if tier else None), _text(cached.get(p.index)), sizes.get(key),
                trouble_with(missing.get(key)) or (tier.trouble if tier else None),
            )
        )  # fmt: skip
    known = form != STREAM and len(ends) == len(starts) == len(keys)
    records = sum(ends[key] - starts[key] for key in keys) if known else None
    if form == STREAM and (streams := read_fact(cluster, name, STREAM_FACT, list[_Entries])) is not None:
        records = sum(one.entries for one in streams) if len(streams) == len(keys) else None
    total_end = sum(ends.values()) if form != STREAM and not missing else None
    return TopicShown(
        name, kafka_id(topic.topic_id), topic.is_internal, form, is_tiered, records,
        sum(sizes.values()) if sizes and not missing else None, *_rates(question, name, total_end), partitions,
        [
            ConfigShown(
                entry.name, None if entry.is_sensitive else entry.value, entry.source,
                entry.source == "topic" and not entry.read_only, entry.read_only, entry.documentation,
            )
            for entry in sorted(entries, key=lambda entry: entry.name)
        ],
    )  # fmt: skip


class _Entries(msgspec.Struct, frozen=True):
    """The number of entries in a stream's status."""

    entries: int


def _text(offset: int | None) -> str | None:
    return None if offset is None else str(offset)


def _cached(cluster: Cluster, topic: TopicInfo) -> dict[int, int]:
    """First offset in memory per partition, as reported by its leader."""
    found: dict[int, int] = {}
    for node_id in sorted({p.leader for p in topic.partitions if p.leader >= 0})[:_LEADERS_MAX]:
        told = read_fact_of_node(cluster, node_id, topic.name, CACHED, dict[int, int]) or {}
        found |= {p.index: told[p.index] for p in topic.partitions if p.leader == node_id and p.index in told}
    return found


class PartitionTier(msgspec.Struct, frozen=True):
    """A tiered partition's offsets in the lake, as reported by the broker."""

    partition: int
    log_start: int
    local_start: int
    lake_end: int | None
    trouble: str | None
    end: int | None = None
    lake_bytes: int | None = None


def tiering_of(cluster: Cluster, topic: str) -> dict[int, PartitionTier]:
    """By partition; empty if the broker is not Headrace."""
    tiers = read_fact(cluster, topic, TIERING, list[PartitionTier]) or []
    return {tier.partition: tier for tier in tiers}


def offsets_of(cluster: Cluster, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """The offset of a special timestamp (earliest, latest) per partition, where it can be read now."""
    found, _ = Admin(cluster).known_offsets(dict.fromkeys(partitions, at))
    return {key: one.offset for key, one in found.items()}


def sizes_of(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Partition sizes, if the brokers report them."""
    found: dict[TopicPartition, int] = {}
    try:
        for node_id, led in cluster.requests(partitions):
            topics = [DescribableLogDirTopic(name, indexes) for name, indexes in by_topic(led).items()]
            answer = cluster.node(node_id).send_for(DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
            for log_dir in answer.results:
                for topic in log_dir.topics:
                    found |= {(topic.name, p.partition_index): p.partition_size for p in topic.partitions}
    except (UnsupportedApi, KafkaError):
        return {}  # the visitor may lack the right; sizes are optional
    return found


def configs_of(cluster: Cluster, topics: Iterable[str], config: str) -> dict[str, str]:
    """One config of many topics in few requests; empty if the broker does not know it."""
    found: dict[str, str] = {}
    try:
        for names in batched(topics, _CONFIGS_AT_ONCE):
            resources = [DescribeConfigsResource(TOPIC, name, [config]) for name in names]
            answer = cluster.controller().send_for(DescribeConfigsRequest(resources), DescribeConfigsResponse)
            found |= {
                result.resource_name: entry.value
                for result in answer.results
                for entry in result.configs
                if entry.name == config and entry.value is not None
            }
    except (UnsupportedApi, KafkaError):
        return {}
    return found


def batched(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Splits a list into chunks."""
    iterator = iter(items)
    while taken := list(islice(iterator, size)):
        yield taken


def trouble_with(error: KafkaError | None) -> str | None:
    """Why something is not known now, as a sentence."""
    found = as_api_error(error) if error is not None else None
    return found.sentence if found is not None else None


def kafka_id(bits: bytes) -> str | None:
    """A topic id as written by Kafka's tools."""
    return None if bits == ZERO_UUID else base64.urlsafe_b64encode(bits).decode().rstrip("=")
