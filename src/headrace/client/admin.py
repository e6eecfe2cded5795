"""Topics, configs, records and offsets: administrative requests with simple typed results.

Each call raises the KafkaError that the broker returned. Changes are only retried if the broker cannot have applied
them; reads are retried until the cluster's deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.client.cluster import BrokerNode, Cluster, by_topic
from headrace.client.connection import BrokerConnection, check
from headrace.client.errors import AWAY, TEMPORARY, kafka_error
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata import MetadataResponseTopic
from headrace.wire.topic_partition import TopicPartition

TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of resources with configs."""

CONFIG_SOURCES = {1: "topic", 2: "broker", 3: "brokers", 4: "file", 5: "default", 8: "group"}
SET, DELETE = 0, 1
_NAMED_MAX = 10
DEFAULT_COUNT = -1


class PartitionInfo(msgspec.Struct, frozen=True):
    """A partition, from the metadata."""

    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic, from the metadata."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionInfo]


class ConfigEntry(msgspec.Struct, frozen=True):
    """One setting of a topic or broker, the source of its value, and whether it is read-only."""

    name: str
    value: str | None
    source: str
    read_only: bool
    is_sensitive: bool
    documentation: str | None


class FoundOffset(msgspec.Struct, frozen=True):
    """An offset, its record's timestamp and its leader epoch; -1 for each that does not exist."""

    offset: int
    timestamp: int
    leader_epoch: int


class ClusterInfo(msgspec.Struct, frozen=True):
    """The brokers and the controller."""

    cluster_id: str | None
    controller_id: int
    nodes: list[BrokerNode]


Missing = dict[TopicPartition, KafkaError]
"""Partitions of which something cannot be known now, and why."""


class Admin:
    """Administrative calls on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self.cluster.timeout_s * 1000)

    def describe_cluster(self) -> ClusterInfo:
        """The brokers, from fresh metadata."""
        self.cluster.retrying(lambda: self.cluster.refresh([]))
        nodes = sorted(self.cluster.nodes.values(), key=lambda node: node.node_id)
        return ClusterInfo(self.cluster.cluster_id, self.cluster.controller_id, nodes)

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT_COUNT,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int = -1,
        validate_only: bool = False,
    ) -> bytes:
        """Creates a topic (-1: the broker's default count) and returns its id; zeros below version 7."""
        listed = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name, partitions, replication_factor, [], listed)
        request = CreateTopicsRequest([topic], self._timeout_ms, validate_only)

        def attempt() -> bytes:
            (result,) = self.cluster.controller().send_for(request, CreateTopicsResponse).topics
            check(result.error_code, result.error_message)
            return result.topic_id

        topic_id = self.cluster.retrying(attempt, repeatable=validate_only)
        if not validate_only:
            self.cluster.expect_topics([name])
        return topic_id

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records."""
        request = DeleteTopicsRequest([DeleteTopicState(name)], [name], self._timeout_ms)

        def attempt() -> None:
            (result,) = self.cluster.controller().send_for(request, DeleteTopicsResponse).responses
            check(result.error_code, result.error_message)

        self.cluster.retrying(attempt, repeatable=False)
        self.cluster.forget_topics([name])

    def list_topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        topics = self.cluster.retrying(lambda: self.cluster.refresh(None))
        found = [_topic_info(topic) for topic in topics if topic.error_code == ErrorCode.NONE]
        return sorted(found, key=lambda topic: topic.name)

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic, from fresh metadata."""

        def attempt() -> TopicInfo:
            self.cluster.forget()
            return _topic_info(self.cluster.topic(name))

        return self.cluster.retrying(attempt)

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Raises a topic's partitions to `count`."""
        topic = CreatePartitionsTopic(name, count, None)
        request = CreatePartitionsRequest([topic], self._timeout_ms, validate_only)

        def attempt() -> None:
            (result,) = self.cluster.controller().send_for(request, CreatePartitionsResponse).results
            check(result.error_code, result.error_message)

        self.cluster.retrying(attempt, repeatable=validate_only)
        self.cluster.forget()

    # Configs

    def describe_configs(
        self, name: str, kind: int = TOPIC, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The settings of a topic, a group, or a broker by its node id; all of them unless `keys` are given."""
        resource = DescribeConfigsResource(kind, name, None if keys is None else list(keys))
        request = DescribeConfigsRequest([resource], False, documentation)

        def attempt() -> list[ConfigEntry]:
            (result,) = self._for_resource(name, kind).send_for(request, DescribeConfigsResponse).results
            check(result.error_code, result.error_message)
            return [
                ConfigEntry(
                    entry.name,
                    entry.value,
                    CONFIG_SOURCES.get(entry.config_source, "unknown"),
                    entry.read_only,
                    entry.is_sensitive,
                    entry.documentation or None,
                )
                for entry in result.configs
            ]

        return self.cluster.retrying(attempt)

    def alter_configs(
        self, name: str, changes: Mapping[str, str | None], kind: int = TOPIC, *, validate_only: bool = False
    ) -> None:
        """Changes these settings only; None resets a setting to its default."""
        listed = [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in changes.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, listed)], validate_only)

        def attempt() -> None:
            (result,) = self._for_resource(name, kind).send_for(request, IncrementalAlterConfigsResponse).responses
            check(result.error_code, result.error_message)

        self.cluster.retrying(attempt)

    def _for_resource(self, name: str, kind: int) -> BrokerConnection:
        """The broker itself, a group's coordinator, or for topics the controller, which applies changes."""
        if kind == GROUP:
            return self.cluster.coordinator(name)
        return self.cluster.node(int(name)) if kind == BROKER and name else self.cluster.controller()

    # Records and offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Per partition, the first offset at or after a timestamp in ms, or that of EARLIEST, LATEST, ..."""
        found, missing = self.known_offsets(wanted, read_committed=read_committed)
        if missing:
            raise missing_error(missing)
        return found

    def known_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> tuple[dict[TopicPartition, FoundOffset], Missing]:
        """The same where it can be known now, and the errors of partitions whose store or replicas are away."""
        found: dict[TopicPartition, FoundOffset] = {}
        missing: Missing = {}

        def attempt() -> None:
            missing.clear()
            left = {partition: at for partition, at in wanted.items() if partition not in found}
            for node_id, partitions in self.cluster.requests(left):
                topics = [
                    ListOffsetsTopic(name, [ListOffsetsPartition(i, -1, left[name, i]) for i in indexes])
                    for name, indexes in by_topic(partitions).items()
                ]
                request = ListOffsetsRequest(-1, int(read_committed), topics, self._timeout_ms)
                answer = self.cluster.node(node_id).send_for(request, ListOffsetsResponse)
                for topic in answer.topics:
                    for p in topic.partitions:
                        key = topic.name, p.partition_index
                        if p.error_code in AWAY:
                            missing[key] = self.cluster.topic_error(topic.name, p.error_code)
                        elif p.error_code:
                            raise self.cluster.topic_error(topic.name, p.error_code)
                        else:
                            found[key] = FoundOffset(p.offset, p.timestamp, p.leader_epoch)
            for error in missing.values():
                raise error

        try:
            if wanted:
                self.cluster.retrying(attempt)
        except KafkaError as error:
            if error not in missing.values():
                raise
        return found, missing

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes each partition's records before an offset (-1: all); returns the new log starts."""

        def attempt() -> dict[TopicPartition, int]:
            starts: dict[TopicPartition, int] = {}
            for node_id, partitions in self.cluster.requests(before):
                topics = [
                    DeleteRecordsTopic(name, [DeleteRecordsPartition(i, before[name, i]) for i in indexes])
                    for name, indexes in by_topic(partitions).items()
                ]
                request = DeleteRecordsRequest(topics, self._timeout_ms)
                for topic in self.cluster.node(node_id).send_for(request, DeleteRecordsResponse).topics:
                    for p in topic.partitions:
                        if p.error_code:
                            raise self.cluster.topic_error(topic.name, p.error_code)
                        starts[topic.name, p.partition_index] = p.low_watermark
            return starts

        return self.cluster.retrying(attempt)


def missing_error(missing: Missing) -> KafkaError:
    """One error for all of them, which names them."""
    (error, *_) = missing.values()
    return kafka_error(error.code, f"{listed(missing)}: {TEMPORARY.get(error.code) or error.message}")


def of_topic(missing: Missing, topic: str) -> dict[int, KafkaError]:
    """A topic's own, by partition."""
    return {partition: error for (name, partition), error in missing.items() if name == topic}


def listed(partitions: Iterable[TopicPartition]) -> str:
    """`orders-0, orders-3 and 4 more`."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    partitions = [
        PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    ]
    return TopicInfo(topic.name or "", topic.topic_id, topic.is_internal, partitions)
