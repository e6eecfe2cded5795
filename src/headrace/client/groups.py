"""Consumer groups for administrators: list, describe, delete, read and set offsets.

Separate from `admin.py` because other brokers answer: each group has a coordinator, and a list combines all brokers'.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.client.cluster import Cluster, by_topic, in_parts
from headrace.client.connection import BrokerConnection, check
from headrace.client.group_types import (
    CLASSIC,
    CONSUMER,
    SHARE,
    Assigned,
    GroupInfo,
    GroupMember,
    GroupPosition,
    describe_newer,
    share_positions,
)
from headrace.wire import codec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.topic_partition import TopicPartition

TOPICS_BY_NAME = 9
"""The newest version of OffsetFetch and OffsetCommit that names topics; later ones have only their ids."""
_DEAD = "Dead"


class GroupListing(msgspec.Struct, frozen=True):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class CommittedOffset(msgspec.Struct, frozen=True):
    """A group's position in a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Groups:
    """Administrative calls on a cluster's groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def list_groups(self) -> list[GroupListing]:
        """All groups of all brokers, by name."""
        found, missing = self.known_groups()
        for error in missing.values():
            raise error
        return found

    def known_groups(self) -> tuple[list[GroupListing], dict[int, KafkaError]]:
        """Those that are known now, and the errors of brokers that may have more."""
        found: dict[str, GroupListing] = {}

        def ask(connection: BrokerConnection) -> int:
            answer = connection.send_for(ListGroupsRequest(), ListGroupsResponse)
            for g in answer.groups:
                found[g.group_id] = GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
            return answer.error_code

        missing = self.cluster.ask_all(ask)
        return [found[name] for name in sorted(found)], missing

    def describe_group(self, group: str) -> GroupInfo:
        """One group of any type; raises GROUP_ID_NOT_FOUND."""

        def attempt() -> GroupInfo:
            connection = self.cluster.coordinator(group)
            (found,) = connection.send_for(DescribeGroupsRequest([group]), DescribeGroupsResponse).groups
            is_missing = found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD
            if is_missing and (newer := describe_newer(connection, group)) is not None:
                return newer
            check(found.error_code, found.error_message)
            if is_missing:  # as versions before 6 say it
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group '{group}'.")
            return _group_info(found)

        return self.cluster.retrying(attempt)

    def positions(self, group: str, group_type: str = CLASSIC) -> dict[TopicPartition, GroupPosition]:
        """The positions of a group of this type; share groups commit no offsets."""
        if group_type.lower() == SHARE:
            return self.cluster.retrying(lambda: share_positions(self.cluster.coordinator(group), group))
        return {key: GroupPosition(at.offset, at.metadata) for key, at in self.offsets(group).items()}

    def delete_group(self, group: str) -> None:
        """Deletes a group without members, with its offsets."""

        def attempt() -> None:
            request = DeleteGroupsRequest([group])
            (result,) = self.cluster.coordinator(group).send_for(request, DeleteGroupsResponse).results
            check(result.error_code, result.error_message)

        self.cluster.retrying(attempt, repeatable=False)

    def offsets(
        self, group: str, partitions: list[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """A group's committed offsets, for these partitions or for all; partitions without one are left out."""

        def attempt() -> dict[TopicPartition, CommittedOffset]:
            found: dict[TopicPartition, CommittedOffset] = {}
            for some in [None] if partitions is None else in_parts(partitions):
                found |= self._fetch_offsets(self.cluster.coordinator(group), group, some)
            return found

        return self.cluster.retrying(attempt)

    def _fetch_offsets(
        self, connection: BrokerConnection, group: str, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        listed = None if partitions is None else by_topic(partitions).items()
        newer = None if listed is None else [OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in listed]
        older = None if listed is None else [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in listed]
        request = OffsetFetchRequest([OffsetFetchRequestGroup(group_id=group, topics=newer)], group, older)
        version = connection.newest(request.api.key, TOPICS_BY_NAME)
        answer = connection.send_for(request, OffsetFetchResponse, version)
        check(answer.error_code)
        topics: list[OffsetFetchResponseTopics | OffsetFetchResponseTopic] = [*answer.topics]
        for found in answer.groups:
            check(found.error_code)
            topics.extend(found.topics)
        committed: dict[TopicPartition, CommittedOffset] = {}
        for topic in topics:
            for p in topic.partitions:
                check(p.error_code)
                if p.committed_offset >= 0:
                    offset = CommittedOffset(p.committed_offset, p.committed_leader_epoch, p.metadata or "")
                    committed[topic.name, p.partition_index] = offset
        return committed

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset | int]) -> None:
        """Commits offsets for a group without members."""
        for some in in_parts(list(offsets)):
            self._set_offsets(group, {partition: offsets[partition] for partition in some})

    def _set_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset | int]) -> None:
        topics = [
            OffsetCommitRequestTopic(name=name, partitions=[_to_commit(i, offsets[name, i]) for i in indexes])
            for name, indexes in by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group, topics=topics)

        def attempt() -> None:
            connection = self.cluster.coordinator(group)
            version = connection.newest(request.api.key, TOPICS_BY_NAME)
            for topic in connection.send_for(request, OffsetCommitResponse, version).topics:
                for p in topic.partitions:
                    if p.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise self.cluster.topic_error(topic.name, p.error_code)
                    check(p.error_code)

        self.cluster.retrying(attempt)


def _to_commit(index: int, offset: CommittedOffset | int) -> OffsetCommitRequestPartition:
    if isinstance(offset, int):
        offset = CommittedOffset(offset)
    return OffsetCommitRequestPartition(index, offset.offset, offset.leader_epoch, offset.metadata)


def _group_info(found: DescribedGroup) -> GroupInfo:
    is_consumer = found.protocol_type == CONSUMER
    members = [
        GroupMember(
            m.member_id, m.group_instance_id, m.client_id, m.client_host,
            assignment_of(m.member_assignment) if is_consumer else {},
        )
        for m in found.members
    ]  # fmt: skip
    return GroupInfo(found.group_id, CLASSIC, found.group_state, found.protocol_type, found.protocol_data, members)


def assignment_of(content: bytes) -> Assigned:
    """The partitions of a member. The bytes are up to the clients; if they cannot be parsed, there are none."""
    version = min(int.from_bytes(content[:2], "big"), ConsumerProtocolAssignment.api.versions[1])
    try:
        decoded, _ = codec.decode(ConsumerProtocolAssignment, version, content, 2)
    except codec.DecodeError:
        return {}
    return {found.topic: sorted(found.partitions) for found in decoded.assigned_partitions if found.partitions}
