"""A group as commands show it: members, their assignments, and lag.

Separate from the commands because it is assembled from several responses, and tables and JSON share it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from headrace.cli.unknown import Reason, trouble_of
from headrace.client import Admin, BrokerUnreachable, Cluster, Groups, UnsupportedApi
from headrace.client.admin import GROUP, Missing
from headrace.client.group_details import records_behind
from headrace.client.group_types import CLASSIC, GroupMember
from headrace.wire.errors import KafkaError
from headrace.wire.special_times import LATEST
from headrace.wire.topic_partition import TopicPartition

ID_CONFIG = "headrace.group.id"
LOCATOR_CONFIG = "headrace.group.locator"
GENERATION_CONFIG = "headrace.group.generation"
_IDENTITY = (ID_CONFIG, LOCATOR_CONFIG, GENERATION_CONFIG)
"""Read-only configs of a group, for values that Kafka's responses have no field for."""


class MemberView(Struct, frozen=True):
    number: int
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class PositionView(Struct, frozen=True, omit_defaults=True):
    """A group's position in a partition; None without one, or if the partition is gone or its store is away."""

    topic: str
    partition: int
    position: int | None
    end: int | None
    lag: int | None
    records: int | None
    """The lag in records: equal to `lag` except in topics of format `stream`; None if unknown."""
    metadata: str
    member: int | None
    trouble: Reason | None = None
    """Why the end is not known now."""


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
        """Over all partitions; None if nothing was committed, or an end is not known now."""
        if any(p.trouble for p in self.positions):
            return None
        known = [p.lag for p in self.positions if p.lag is not None]
        return sum(known) if known else None

    @property
    def records(self) -> int | None:
        """The same in records; None if it is unknown for any partition."""
        return None if self.lag is None else sum_records(self.positions)


def view_group(cluster: Cluster, group: str) -> tuple[GroupView, Missing]:
    """A group with its members and positions, and the partitions of which the end is not known now."""
    info = Groups(cluster).describe_group(group)
    members = [_member(number, m) for number, m in enumerate(_sorted(info.members), 1)]
    owners = {
        (topic, partition): member.number
        for member in members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    configs = _identity(cluster, group)
    positions, missing = view_positions(cluster, group, info.type, owners)
    view = GroupView(
        group=group,
        id=configs.get(ID_CONFIG),
        locator=configs.get(LOCATOR_CONFIG),
        generation=int(configs.get(GENERATION_CONFIG) or 0) or None,
        state=info.state,
        protocol_type=info.protocol_type,
        protocol=info.protocol,
        members=members,
        positions=positions,
    )
    return view, missing


def view_positions(
    cluster: Cluster, group: str, group_type: str = CLASSIC, owners: Mapping[TopicPartition, int] | None = None
) -> tuple[list[PositionView], Missing]:
    """All partitions with a position, and assigned ones without; and those of which the end is not known now."""
    owners = owners or {}
    committed = Groups(cluster).positions(group, group_type)
    partitions = sorted(committed.keys() | owners.keys())
    known, missing = Admin(cluster).known_offsets(dict.fromkeys(existing(cluster, partitions), LATEST))
    ends = {key: at.offset for key, at in known.items()}
    counted = records_behind(cluster, group) if committed else {}
    found = []
    for key in partitions:
        at, end = committed.get(key), ends.get(key)
        lag = max(end - at.offset, 0) if at and end is not None else None
        lag = at.lag if at and at.lag is not None else lag
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
                trouble=trouble_of(missing[key]) if key in missing else None,
            )
        )
    return found, missing


def existing(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Only existing partitions: committed offsets outlive a deleted topic."""
    names = sorted({topic for topic, _ in partitions})
    topics = cluster.retrying(lambda: cluster.refresh(names)) if names else []
    there = {(t.name, p.partition_index) for t in topics if not t.error_code for p in t.partitions}
    return [key for key in partitions if key in there]


def _sorted(members: list[GroupMember]) -> list[GroupMember]:
    return sorted(members, key=lambda member: (member.client_id, member.member_id))


def _member(number: int, member: GroupMember) -> MemberView:
    return MemberView(
        number=number,
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        assignment=member.assigned,
    )


def sum_records(positions: Collection[PositionView]) -> int | None:
    """Over partitions with a known lag; None if the records of any of them are unknown."""
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
        return {}  # other brokers have no such id
    return {entry.name: entry.value for entry in entries}
