"""A group as people look at it: who is in it, what each member reads, and how far behind it is.

Apart from the command because it is put together from several answers of the cluster, and tables and JSON show the
same.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from msgspec import Struct

from headrace.cli.records.where import latest
from headrace.client import Admin, BrokerUnreachable, Cluster, Groups, UnsupportedApi
from headrace.client.admin import GROUP
from headrace.client.group_details import assignment_of, records_behind
from headrace.client.groups import GroupInfo, GroupMember
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.topic_partition import TopicPartition

ID_CONFIG, LOCATOR_CONFIG, GENERATION_CONFIG = (
    "headrace.group.id",
    "headrace.group.locator",
    "headrace.group.generation",
)
"""Read-only configs of a group: what Kafka's own answers have no field for."""
_IDENTITY = ("headrace.group.id", "headrace.group.locator", "headrace.group.generation")
"""Asked for by name, it is one config per topic of format `stream`."""
CONSUMER = "consumer"


class MemberView(Struct, frozen=True):
    number: int
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class PositionView(Struct, frozen=True):
    """How far a group is in a partition; None where it committed nothing, or where the partition is gone."""

    topic: str
    partition: int
    position: int | None
    end: int | None
    lag: int | None
    records: int | None
    """How many records that is: the lag itself, but in topics of format `stream`; None where it is not known."""
    metadata: str
    member: int | None


class GroupView(Struct, frozen=True):
    group: str
    id: str | None
    locator: str | None
    generation: int | None
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberView]
    positions: list[PositionView]

    @property
    def lag(self) -> int | None:
        """Over all partitions; None where nothing was committed."""
        known = [p.lag for p in self.positions if p.lag is not None]
        return sum(known) if known else None

    @property
    def records(self) -> int | None:
        """The same in records; None where that is not known of all."""
        return None if self.lag is None else sum_records(self.positions)


def view_group(cluster: Cluster, group: str) -> GroupView:
    """A group, its members and its positions."""
    info = describe_existing(Groups(cluster), group)
    members = [_member(number, m, info) for number, m in enumerate(_sorted(info.members), 1)]
    owners = {
        (topic, partition): member.number
        for member in members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    configs = _identity(cluster, group)
    return GroupView(
        group=group,
        id=configs.get(ID_CONFIG),
        locator=configs.get(LOCATOR_CONFIG),
        generation=int(configs.get(GENERATION_CONFIG) or 0) or None,
        state=info.state,
        protocol_type=info.protocol_type,
        protocol=info.protocol,
        members=members,
        positions=view_positions(cluster, group, owners),
    )


def describe_existing(groups: Groups, group: str) -> GroupInfo:
    """A group; older versions of the API call one that does not exist Dead, newer ones answer an error."""
    info = groups.describe_group(group)
    if info.state == "Dead":
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group '{group}'.")
    return info


def view_positions(
    cluster: Cluster, group: str, owners: Mapping[TopicPartition, int] | None = None
) -> list[PositionView]:
    """What a group committed, and what its members have without a commit yet."""
    owners = owners or {}
    committed = Groups(cluster).offsets(group)
    partitions = sorted(committed.keys() | owners.keys())
    ends = latest(Admin(cluster), existing(cluster, partitions))
    counted = records_behind(cluster, group) if committed else {}
    found = []
    for key in partitions:
        at, end = committed.get(key), ends.get(key)
        lag = max(end - at.offset, 0) if at and end is not None else None
        found.append(
            PositionView(
                topic=key[0],
                partition=key[1],
                position=at.offset if at else None,
                end=end,
                lag=lag,
                records=_records_of(counted, key, lag),
                metadata=at.metadata if at else "",
                member=owners.get(key),
            )
        )
    return found


def existing(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions that are there: offsets outlive a topic that was deleted."""
    names = sorted({topic for topic, _ in partitions})
    topics = cluster.retrying(lambda: cluster.refresh(names)) if names else []
    there = {(t.name, p.partition_index) for t in topics if not t.error_code for p in t.partitions}
    return [key for key in partitions if key in there]


def ranges(numbers: Collection[int]) -> str:
    """`0-3,7`."""
    parts = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(parts)


def _sorted(members: list[GroupMember]) -> list[GroupMember]:
    return sorted(members, key=lambda member: (member.client_id, member.member_id))


def _member(number: int, member: GroupMember, info: GroupInfo) -> MemberView:
    return MemberView(
        number=number,
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        assignment=assignment_of(member.assignment) if info.protocol_type == CONSUMER else {},
    )


def sum_records(positions: Collection[PositionView]) -> int | None:
    """Over the partitions whose lag is known; None if the records of one of them are not."""
    known = [p.records for p in positions if p.lag is not None]
    return None if None in known else sum(records or 0 for records in known)


def _records_of(counted: dict[str, dict[int, int | None]] | None, key: TopicPartition, lag: int | None) -> int | None:
    if counted is None:
        return None
    topic = counted.get(key[0])
    return lag if topic is None else topic.get(key[1])


def _identity(cluster: Cluster, group: str) -> dict[str, str | None]:
    try:
        entries = Admin(cluster).describe_configs(group, GROUP, _IDENTITY)
    except (UnsupportedApi, KafkaError, BrokerUnreachable):
        return {}  # other brokers have no such identity
    return {entry.name: entry.value for entry in entries}
