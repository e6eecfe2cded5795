"""Groups that are not classic, as other brokers have them: consumer (KIP-848), share (KIP-932) and streams (KIP-1071).

Each type has an API of its own that describes it; for a group of another type the answer is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.client.connection import BrokerConnection, check
from headrace.client.errors import UnsupportedApi
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import consumer_group_describe, share_group_describe
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from headrace.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from headrace.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from headrace.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
)
from headrace.wire.topic_partition import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
_OF_ANOTHER_TYPE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)

Assigned = dict[str, list[int]]
"""Topic -> partitions."""


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group and its assignment, which is empty for members that are not consumers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assigned: Assigned


class GroupInfo(msgspec.Struct, frozen=True):
    """A group and its members."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    """The assignor, if the broker knows it."""
    members: list[GroupMember]


class GroupPosition(msgspec.Struct, frozen=True):
    """A group's position in a partition: the committed offset, or the first record in flight of a share group."""

    offset: int
    metadata: str = ""
    lag: int | None = None
    """Lag in records, if the broker counts it, as for share groups."""


def describe_newer(connection: BrokerConnection, group: str) -> GroupInfo | None:
    """A group that is not classic; None if there is no such group."""
    for describe in (_consumer_group, _share_group, _streams_group):
        try:
            found = describe(connection, group)
        except UnsupportedApi:
            continue
        if found is not None:
            return found
    return None


def share_positions(connection: BrokerConnection, group: str) -> dict[TopicPartition, GroupPosition]:
    """The positions in all partitions that a share group has begun to read."""
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    (found,) = connection.send_for(request, DescribeShareGroupOffsetsResponse).groups
    check(found.error_code, found.error_message)
    return {
        (topic.topic_name, p.partition_index): GroupPosition(p.start_offset, lag=p.lag if p.lag >= 0 else None)
        for topic in found.topics
        for p in topic.partitions
        if not p.error_code and p.start_offset >= 0
    }


def _consumer_group(connection: BrokerConnection, group: str) -> GroupInfo | None:
    (found,) = connection.send_for(ConsumerGroupDescribeRequest([group]), ConsumerGroupDescribeResponse).groups
    if found.error_code in _OF_ANOTHER_TYPE:
        return None
    check(found.error_code, found.error_message)
    members = [
        GroupMember(m.member_id, m.instance_id, m.client_id, m.client_host, _assigned(m.assignment))
        for m in found.members
    ]
    return GroupInfo(group, CONSUMER, found.group_state, CONSUMER, found.assignor_name, members)


def _share_group(connection: BrokerConnection, group: str) -> GroupInfo | None:
    (found,) = connection.send_for(ShareGroupDescribeRequest([group]), ShareGroupDescribeResponse).groups
    if found.error_code in _OF_ANOTHER_TYPE:
        return None
    check(found.error_code, found.error_message)
    members = [
        GroupMember(m.member_id, None, m.client_id, m.client_host, _assigned(m.assignment)) for m in found.members
    ]
    return GroupInfo(group, SHARE, found.group_state, SHARE, found.assignor_name, members)


def _streams_group(connection: BrokerConnection, group: str) -> GroupInfo | None:
    (found,) = connection.send_for(StreamsGroupDescribeRequest([group]), StreamsGroupDescribeResponse).groups
    if found.error_code in _OF_ANOTHER_TYPE:
        return None
    check(found.error_code, found.error_message)
    subtopologies = (found.topology.subtopologies if found.topology else None) or []
    sources = {
        one.subtopology_id: [*one.source_topics, *(topic.name for topic in one.repartition_source_topics)]
        for one in subtopologies
    }
    members = [
        GroupMember(m.member_id, m.instance_id, m.client_id, m.client_host, _tasks(m.assignment.active_tasks, sources))
        for m in found.members
    ]
    return GroupInfo(group, STREAMS, found.group_state, STREAMS, found.assignor_name or "", members)


def _tasks(tasks: list[TaskIds], sources: dict[str, list[str]]) -> Assigned:
    """A task reads the partition of its number of every topic that its subtopology reads."""
    assigned: dict[str, set[int]] = {}
    for task in tasks:
        for topic in sources.get(task.subtopology_id, ()):
            assigned.setdefault(topic, set()).update(task.partitions)
    return {topic: sorted(partitions) for topic, partitions in sorted(assigned.items())}


def _assigned(assignment: consumer_group_describe.Assignment | share_group_describe.Assignment) -> Assigned:
    return {one.topic_name: sorted(one.partitions) for one in assignment.topic_partitions if one.partitions}
