"""The lake and streams: tiered topics, and topics shared with Redis code."""

from __future__ import annotations

import msgspec

from headrace.client import Cluster
from headrace.console.api.topics import FORMAT, STREAM, TIERED, all_topics, configs_of, tiering_of
from headrace.console.endpoints import ApiQuestion, page_of
from headrace.console.facts import STREAM as STREAM_FACT
from headrace.console.facts import TABLE, read_fact

_PAGE_SIZE = 20
_STREAMS_TOLD = 100
"""Partitions of a topic that a broker tells about."""


class LakePartition(msgspec.Struct, frozen=True):
    """A partition's offsets: archived up to `lake_end`, only in the lake below `local_start`."""

    partition: int
    log_start: int
    local_start: int
    lake_end: int | None
    trouble: str | None
    end: int | None
    lake_bytes: int | None
    lag: int | None
    """Records not yet in the lake."""


class ProofShown(msgspec.Struct, frozen=True):
    """The last `headrace lake verify` of the table."""

    at_ms: int
    files: int
    rows: int
    findings: int


class LakeTable(msgspec.Struct, frozen=True):
    """A topic's table; `trouble` says why the rest is unknown."""

    trouble: str | None = None
    place: str | None = None
    files: int | None = None
    rows: int | None = None
    size_bytes: int | None = None
    last_commit_ms: int | None = None
    rejects: int | None = None
    """Records that do not match the schema, if the topic has a typed table."""
    proof: ProofShown | None = None


class LakeTopic(msgspec.Struct, frozen=True):
    topic: str
    partitions: list[LakePartition]
    cold_records: int
    table: LakeTable
    missing: list[int] = []
    """Partitions whose server is away."""


class LakeShown(msgspec.Struct, frozen=True):
    topics: list[LakeTopic]
    total: int
    page: int
    pages: int


class PendingShown(msgspec.Struct, frozen=True):
    """An entry delivered to a Redis consumer but not acknowledged."""

    id: str
    consumer: str
    idle_ms: int
    deliveries: int


class StreamGroupShown(msgspec.Struct, frozen=True):
    """A Redis consumer group on the key."""

    name: str
    consumers: int
    pending: int
    last_delivered: str
    lag: int | None
    oldest: list[PendingShown]


class StreamShown(msgspec.Struct, frozen=True):
    """A partition's key, as shown by XINFO."""

    partition: int
    key: str
    entries: int
    entries_added: int | None
    first_id: str | None
    last_id: str | None
    size_bytes: int | None
    groups: list[StreamGroupShown]


class StreamTopic(msgspec.Struct, frozen=True):
    topic: str
    keys: list[StreamShown]
    missing: list[int] = []
    """Partitions whose server is away."""


class StreamsShown(msgspec.Struct, frozen=True):
    topics: list[StreamTopic]
    total: int
    page: int
    pages: int


def show_lake(cluster: Cluster, question: ApiQuestion) -> LakeShown:
    names = _having(cluster, question, TIERED, "true")
    page = page_of(len(names), question.number("page", 1, 1, 1_000_000), _PAGE_SIZE)
    counts = {topic.name: len(topic.partitions) for topic in all_topics(cluster, question)}
    topics = [_lake_topic(cluster, name, counts.get(name, 0)) for name in names[page.first : page.last]]
    return LakeShown(topics, len(names), *page[2:])


def _lake_topic(cluster: Cluster, name: str, count: int) -> LakeTopic:
    partitions = []
    for _, tier in sorted(tiering_of(cluster, name).items()):
        lag = None if tier.end is None else max(tier.end - (tier.lake_end or tier.log_start), 0)
        partitions.append(
            LakePartition(
                tier.partition, tier.log_start, tier.local_start, tier.lake_end, tier.trouble, tier.end,
                tier.lake_bytes, lag,
            )
        )  # fmt: skip
    table = read_fact(cluster, name, TABLE, LakeTable) or LakeTable(trouble="The broker does not report it.")
    there = {p.partition for p in partitions}
    missing = [p for p in range(count) if p not in there] if there else []
    return LakeTopic(name, partitions, sum(p.local_start - p.log_start for p in partitions), table, missing)


def show_streams(cluster: Cluster, question: ApiQuestion) -> StreamsShown:
    names = _having(cluster, question, FORMAT, STREAM)
    page = page_of(len(names), question.number("page", 1, 1, 1_000_000), _PAGE_SIZE)
    counts = {topic.name: len(topic.partitions) for topic in all_topics(cluster, question)}
    topics = [_stream_topic(cluster, name, counts.get(name, 0)) for name in names[page.first : page.last]]
    return StreamsShown(topics, len(names), *page[2:])


def _stream_topic(cluster: Cluster, name: str, partitions: int) -> StreamTopic:
    keys = read_fact(cluster, name, STREAM_FACT, list[StreamShown])
    if keys is None:
        return StreamTopic(name, [])
    there = {key.partition for key in keys}
    return StreamTopic(name, keys, [p for p in range(min(partitions, _STREAMS_TOLD)) if p not in there])


def _having(cluster: Cluster, question: ApiQuestion, config: str, value: str) -> list[str]:
    """Topics with this value of a config, by name."""
    search = question.text("search").lower()

    def make() -> list[str]:
        found = configs_of(cluster, [topic.name for topic in all_topics(cluster, question)], config)
        return sorted(name for name, given in found.items() if given == value)

    having = question.state.kept.get(question.visitor.token, f"{config}={value}", make)
    return [name for name in having if search in name.lower()]
