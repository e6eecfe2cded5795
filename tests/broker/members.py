"""Members of groups by hand: every request of the group APIs, in any version, over a connection of one's own.

A member's connection is its own because a Join or Sync may be held back, and what follows on a connection waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Protocol

from headrace.client.connection import BrokerConnection
from headrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.broker_process import wait_until

JOIN_VERSIONS = range(10)
SYNC_VERSIONS = range(6)
HEARTBEAT_VERSIONS = range(5)
LEAVE_VERSIONS = range(6)
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
DELETE_VERSIONS = range(4)
DESCRIBE_VERSIONS = range(7)
LIST_VERSIONS = range(6)
BY_NAME = 9
"""The newest version of OffsetCommit and OffsetFetch that names topics."""

NONE, UNKNOWN_TOPIC_OR_PARTITION, METADATA_TOO_LARGE = 0, 3, 12
LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID = 22, 23, 24, 25
INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS = 26, 27
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED = 68, 69, 79
GROUP_FULL, FENCED_INSTANCE_ID, SUBSCRIBED, UNKNOWN_TOPIC_ID = 81, 82, 86, 100

RETRIED = {LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
"""What every client asks again after: the coordinator is loading, not available, or lost its lease for a moment."""
SESSION_MS = 30_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself: version 0, topics, no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class Listening(Protocol):
    """A broker by where it listens, of whichever make."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Member:
    """One member; it does what the test says and remembers what it was told."""

    def __init__(
        self,
        broker: Listening,
        group: str,
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        client_id: str = "member",
    ) -> None:
        self.connection = BrokerConnection(broker.host, broker.port, client_id=client_id)
        self.group = group
        self.instance_id = instance_id
        self.protocols = {"range": subscription("orders")} if protocols is None else protocols
        self.protocol_type = protocol_type
        self.id = ""
        self.generation = -1

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    # Join and Sync in two halves, because the answer may be held back

    def ask_join(self, version: int = 9, session_ms: int = SESSION_MS, rebalance_ms: int = REBALANCE_MS) -> None:
        protocols = [JoinGroupRequestProtocol(name, metadata) for name, metadata in self.protocols.items()]
        request = JoinGroupRequest(
            self.group, session_ms, rebalance_ms, self.id, self.instance_id, self.protocol_type, protocols
        )
        self.connection.ask(request, version)

    def joined(self) -> JoinGroupResponse:
        answer = self.connection.receive()
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code in (NONE, MEMBER_ID_REQUIRED):
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self, version: int = 9, **timeouts: int) -> JoinGroupResponse:
        """All that a client does until it is in: with a handed-out id it comes again."""
        self.ask_join(version, **timeouts)
        answer = self.joined()
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.ask_join(version, **timeouts)
            answer = self.joined()
        return answer

    def ask_sync(
        self,
        assignments: Mapping[str, bytes] | None = None,
        version: int = 5,
        *,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> None:
        rows = [SyncGroupRequestAssignment(member, assigned) for member, assigned in (assignments or {}).items()]
        request = SyncGroupRequest(
            self.group, self.generation, self.id, self.instance_id, protocol_type, protocol_name, rows
        )
        self.connection.ask(request, version)

    def synced(self) -> SyncGroupResponse:
        answer = self.connection.receive()
        assert isinstance(answer, SyncGroupResponse)
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> SyncGroupResponse:
        self.ask_sync(assignments, version)
        return self.synced()

    # The rest is answered at once

    def heartbeat(self, version: int = 4, generation: int | None = None) -> int:
        self.ask_heartbeat(version, generation)
        return self.heard()

    def ask_heartbeat(self, version: int = 4, generation: int | None = None) -> None:
        generation = self.generation if generation is None else generation
        self.connection.ask(HeartbeatRequest(self.group, generation, self.id, self.instance_id), version)

    def heard(self) -> int:
        answer = self.connection.receive()
        assert isinstance(answer, HeartbeatResponse)
        return answer.error_code

    def leave(self, version: int = 5) -> LeaveGroupResponse:
        return self.remove([MemberIdentity(self.id, self.instance_id)], version)

    def remove(self, members: Sequence[MemberIdentity], version: int = 5) -> LeaveGroupResponse:
        request = LeaveGroupRequest(self.group, list(members), members[0].member_id)
        return self.connection.send_for(request, LeaveGroupResponse, version)

    def commit(
        self, topic: str, offsets: Mapping[int, int], version: int = BY_NAME, *, metadata: str = "", epoch: int = -1
    ) -> dict[int, int]:
        """Commits as this member; the error of each partition."""
        return commit(
            self.connection, self.group, topic, offsets, version,
            member_id=self.id, generation=self.generation, instance_id=self.instance_id, metadata=metadata, epoch=epoch,
        )  # fmt: skip

    def form(self, version: int = 9) -> Member:
        """Alone in the group: joins and assigns itself everything."""
        answers: list[int] = []

        def is_told() -> bool:
            answers.append(self.join(version).error_code)
            return answers[-1] not in RETRIED

        wait_until(is_told, "the coordinator does not answer")
        assert answers[-1] == NONE, f"the join is refused: {answers}"
        assert self.sync({self.id: b"everything"}, min(version, 5)).error_code == NONE
        return self


def form(leader: Member, *followers: Member) -> None:
    """Makes a Stable group; everybody is assigned its own member id. With an initial delay of 0 the leader is first."""
    leader.form()
    for member in followers:
        if member.instance_id is None:
            member.ask_join()
            assert member.joined().error_code == MEMBER_ID_REQUIRED
    for member in followers:
        member.ask_join()
    if followers:
        join_again(leader)
        for member in followers:
            assert member.joined().error_code == NONE
        everybody = (leader, *followers)
        assign({member.id: member.id.encode() for member in everybody}, leader, *followers)


def join_again(*members: Member) -> None:
    """Members are told to join again, and do; they are the last ones that the others wait for."""
    for member in members:
        wait_until(partial(_is_told_to_join, member), f"{member.id} was not told to join again")
    for member in members:
        member.ask_join()
    assert {member.joined().error_code for member in members} == {NONE}


def _is_told_to_join(member: Member) -> bool:
    return member.heartbeat() == REBALANCE_IN_PROGRESS


def rebalance(leader: Member, *followers: Member) -> None:
    """The leader of a Stable group asks for a new generation; nobody has synced yet."""
    leader.ask_join()
    join_again(*followers)
    assert leader.joined().error_code == NONE


def assign(assignments: Mapping[str, bytes], leader: Member, *followers: Member) -> None:
    """Everybody syncs."""
    for member in followers:
        member.ask_sync()
    leader.ask_sync(assignments)
    assert {member.synced().error_code for member in (leader, *followers)} == {NONE}


def commit(
    connection: BrokerConnection,
    group: str,
    topic: str | bytes,
    offsets: Mapping[int, int],
    version: int = BY_NAME,
    *,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = "",
    epoch: int = -1,
) -> dict[int, int]:
    """Commits to a topic by name, or by id from version 10 on; the error of each partition."""
    partitions = [OffsetCommitRequestPartition(index, at, epoch, metadata) for index, at in offsets.items()]
    named = (
        OffsetCommitRequestTopic(name=topic, partitions=partitions)
        if isinstance(topic, str)
        else OffsetCommitRequestTopic(topic_id=topic, partitions=partitions)
    )
    request = OffsetCommitRequest(group, generation, member_id, instance_id, topics=[named])
    (answer,) = connection.send_for(request, OffsetCommitResponse, version).topics
    return {row.partition_index: row.error_code for row in answer.partitions}


Fetched = dict[tuple[str | bytes, int], tuple[int, int, str | None, int]]
"""Topic (its id from version 10 on) and partition -> offset, leader epoch, metadata, error."""


def fetch_offsets(
    connection: BrokerConnection,
    group: str,
    topics: Mapping[str | bytes, Sequence[int]] | None,
    version: int = BY_NAME,
    *,
    require_stable: bool = False,
) -> tuple[int, Fetched]:
    """What a group has committed; the group's error, and the rows."""
    if version >= 8:
        (found,) = fetch_many(connection, {group: topics}, version, require_stable=require_stable)
        rows = [(t.topic_id if version >= 10 else t.name, row) for t in found.topics for row in t.partitions]
        return found.error_code, {
            (topic, r.partition_index): (r.committed_offset, r.committed_leader_epoch, r.metadata, r.error_code)
            for topic, r in rows
        }
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopic(str(name), list(numbers)) for name, numbers in topics.items()]
    request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=require_stable)
    answer = connection.send_for(request, OffsetFetchResponse, version)
    return answer.error_code, {
        (t.name, r.partition_index): (r.committed_offset, r.committed_leader_epoch, r.metadata, r.error_code)
        for t in answer.topics
        for r in t.partitions
    }


def fetch_many(
    connection: BrokerConnection,
    groups: Mapping[str, Mapping[str | bytes, Sequence[int]] | None],
    version: int = BY_NAME,
    *,
    require_stable: bool = False,
) -> list[OffsetFetchResponseGroup]:
    """Several groups in one request, since version 8."""
    request = OffsetFetchRequest(
        [OffsetFetchRequestGroup(group, topics=_asked(topics)) for group, topics in groups.items()],
        require_stable=require_stable,
    )
    return connection.send_for(request, OffsetFetchResponse, version).groups


def _asked(topics: Mapping[str | bytes, Sequence[int]] | None) -> list[OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    return [
        OffsetFetchRequestTopics(name=topic, partition_indexes=list(numbers))
        if isinstance(topic, str)
        else OffsetFetchRequestTopics(topic_id=topic, partition_indexes=list(numbers))
        for topic, numbers in topics.items()
    ]


def committed_offset(connection: BrokerConnection, group: str, topic: str, partition: int = 0) -> int:
    """One committed offset, -1 if there is none."""
    error, rows = fetch_offsets(connection, group, {topic: [partition]})
    assert error == NONE
    offset, _, _, error = rows[topic, partition]
    assert error == NONE
    return offset


def describe(connection: BrokerConnection, group: str, version: int = 5) -> DescribedGroup:
    (found,) = connection.send_for(DescribeGroupsRequest([group]), DescribeGroupsResponse, version).groups
    return found


def state_of(connection: BrokerConnection, group: str) -> str:
    return describe(connection, group).group_state


def list_groups(
    connection: BrokerConnection, version: int = 5, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> dict[str, tuple[str, str, str]]:
    """Group -> protocol type, state, type."""
    request = ListGroupsRequest(list(states), list(types))
    answer = connection.send_for(request, ListGroupsResponse, version)
    assert answer.error_code == NONE
    return {row.group_id: (row.protocol_type, row.group_state, row.group_type) for row in answer.groups}


def delete_groups(connection: BrokerConnection, *groups: str, version: int = 2) -> list[int]:
    results = connection.send_for(DeleteGroupsRequest(list(groups)), DeleteGroupsResponse, version).results
    return [row.error_code for row in results]


def delete_offsets(
    connection: BrokerConnection, group: str, topic: str, *partitions: int
) -> tuple[int, dict[int, int]]:
    rows = [OffsetDeleteRequestPartition(number) for number in partitions]
    request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, rows)])
    answer = connection.send_for(request, OffsetDeleteResponse, 0)
    return answer.error_code, {r.partition_index: r.error_code for t in answer.topics for r in t.partitions}
