"""The lake and the streams: topics whose records leave Redis, and topics that Redis code shares."""

from __future__ import annotations

import msgspec

from headrace.client import Admin, Cluster
from headrace.console.api.topics import FORMAT, STREAM, TIERED, configs_of, tiering_of
from headrace.console.endpoints import ApiQuestion, page_of
from headrace.wire.errors import KafkaError

_TOPICS_MAX = 2_000
_PAGE_SIZE = 50


class LakePartition(msgspec.Struct, frozen=True):
    """How far a partition is: up to `lake_end` it is archived, below `local_start` it is in the lake alone."""

    partition: int
    log_start: int
    local_start: int
    lake_end: int | None
    trouble: str | None


class LakeTopic(msgspec.Struct, frozen=True):
    topic: str
    partitions: list[LakePartition]
    cold_records: int


class LakeShown(msgspec.Struct, frozen=True):
    topics: list[LakeTopic]
    total: int
    page: int
    pages: int


class StreamKey(msgspec.Struct, frozen=True):
    partition: int
    key: str


class StreamTopic(msgspec.Struct, frozen=True):
    topic: str
    keys: list[StreamKey]


class StreamsShown(msgspec.Struct, frozen=True):
    topics: list[StreamTopic]
    total: int
    page: int
    pages: int


def show_lake(cluster: Cluster, question: ApiQuestion) -> LakeShown:
    admin = Admin(cluster)
    names = _having(cluster, question, TIERED, "true")
    page = page_of(len(names), question.number("page", 1, 1, 1_000_000), _PAGE_SIZE)
    topics = []
    for name in names[page.first : page.last]:
        try:
            tiers = tiering_of(admin, name)
        except KafkaError:
            tiers = {}
        partitions = [LakePartition(*msgspec.structs.astuple(tier)) for _, tier in sorted(tiers.items())]
        topics.append(LakeTopic(name, partitions, sum(p.local_start - p.log_start for p in partitions)))
    return LakeShown(topics, len(names), page.page, page.pages)


def show_streams(cluster: Cluster, question: ApiQuestion) -> StreamsShown:
    names = _having(cluster, question, FORMAT, STREAM)
    page = page_of(len(names), question.number("page", 1, 1, 1_000_000), _PAGE_SIZE)
    infos = {topic.name: topic for topic in Admin(cluster).list_topics()}
    prefix, organisation = question.state.settings.key_prefix or "headrace", question.visitor.organisation
    topics = [
        StreamTopic(
            name,
            [
                StreamKey(p.index, f"{prefix}:{organisation}:{{{name}:{p.index}}}:stream")
                for p in infos[name].partitions
            ],
        )
        for name in names[page.first : page.last]
        if name in infos
    ]
    return StreamsShown(topics, len(names), page.page, page.pages)


def _having(cluster: Cluster, question: ApiQuestion, config: str, value: str) -> list[str]:
    """Topics with this value of a config, by name."""
    search = question.text("search").lower()
    names = [topic.name for topic in Admin(cluster).list_topics() if search in topic.name.lower()][:_TOPICS_MAX]
    found = configs_of(cluster, names, config)
    return sorted(name for name, given in found.items() if given == value)
