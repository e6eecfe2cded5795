"""Groups of every type: a page of the list, and one group with members, assignments, lag and lag history."""

from __future__ import annotations

import time
from collections.abc import Collection

import msgspec

from headrace.client import Admin, Cluster, Groups, UnsupportedApi
from headrace.client.group_details import records_behind
from headrace.client.group_types import CLASSIC, GroupMember, GroupPosition
from headrace.console.api.topics import trouble_with
from headrace.console.endpoints import ApiQuestion, Done, page_of
from headrace.wire.errors import KafkaError
from headrace.wire.special_times import LATEST
from headrace.wire.topic_partition import TopicPartition

PAGE_SIZE = 50


class GroupRow(msgspec.Struct, frozen=True):
    """A group in the list; lag in records, null if it is not known of every partition."""

    group: str
    type: str
    state: str
    protocol_type: str
    topics: int | None
    lag: int | None
    trouble: str | None = None
    """Why topics or lag are not known now."""


class GroupList(msgspec.Struct, frozen=True):
    groups: list[GroupRow]
    total: int
    page: int
    pages: int
    trouble: str | None = None
    """Why some groups may be missing now."""


class MemberShown(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class PositionShown(msgspec.Struct, frozen=True):
    """A group's position in a partition; offsets are text, for topics of format `stream`."""

    topic: str
    partition: int
    committed: str | None
    end: str | None
    lag: int | None
    metadata: str
    member_id: str | None
    trouble: str | None = None
    """Why the end is not known now."""


class LagSeries(msgspec.Struct, frozen=True):
    """Times in seconds since 1970, and lag."""

    topic: str
    points: list[tuple[float, float]]


class GroupShown(msgspec.Struct, frozen=True):
    group: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberShown]
    positions: list[PositionShown]
    lag: int | None
    history: list[LagSeries]


def list_groups(cluster: Cluster, question: ApiQuestion) -> GroupList:
    search, state = question.text("search").lower(), question.text("state")
    known, missing = Groups(cluster).known_groups()
    for error in missing.values() if not known else ():
        raise error
    listed = [group for group in known if search in group.group_id.lower() and (not state or group.state == state)]
    page = page_of(len(listed), question.number("page", 1, 1, 1_000_000), PAGE_SIZE)
    rows = []
    for group in listed[page.first : page.last]:
        summary = _summary(cluster, group.group_id, group.type)
        rows.append(GroupRow(group.group_id, group.type, group.state, group.protocol_type, *summary))
    trouble = next((trouble_with(error) for error in missing.values()), None)
    return GroupList(rows, len(listed), page.page, page.pages, trouble)


def _summary(cluster: Cluster, group: str, group_type: str) -> tuple[int | None, int | None, str | None]:
    """Topics and lag of a group; a group that cannot be read does not break the list."""
    try:
        if group_type == CLASSIC:
            Groups(cluster).describe_group(group)  # refused at once where offsets would be waited for
        positions = positions_of(cluster, group, group_type, {})
    except KafkaError as error:
        return None, None, trouble_with(error)
    except UnsupportedApi:
        return None, None, None
    trouble = next((position.trouble for position in positions if position.trouble), None)
    return len({position.topic for position in positions}), _total(positions), trouble


def show_group(cluster: Cluster, question: ApiQuestion) -> GroupShown:
    group = question.needed("group")
    info = Groups(cluster).describe_group(group)
    members = sorted(info.members, key=lambda member: (member.client_id, member.member_id))
    shown = [_member(member) for member in members]
    owners = {
        (topic, partition): member.member_id
        for member in shown
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    positions = positions_of(cluster, group, info.type, owners)
    return GroupShown(
        group, info.type, info.state, info.protocol_type, info.protocol, shown, positions, _total(positions),
        _history(question, group, positions),
    )  # fmt: skip


def delete_group(cluster: Cluster, question: ApiQuestion) -> Done:
    group = question.needed("group")
    question.confirmed(group)
    Groups(cluster).delete_group(group)
    return Done()


def positions_of(
    cluster: Cluster, group: str, group_type: str, owners: dict[TopicPartition, str]
) -> list[PositionShown]:
    """All partitions with a position, and assigned ones without."""
    positions = Groups(cluster).positions(group, group_type)
    keys = sorted(positions.keys() | owners.keys())
    there = existing(cluster, keys)
    ends, missing = Admin(cluster).known_offsets(dict.fromkeys(there, LATEST))
    counted = records_behind(cluster, group) if positions else {}
    found = []
    for topic, partition in keys:
        at, end = positions.get((topic, partition)), ends.get((topic, partition))
        trouble = trouble_with(missing.get((topic, partition)))
        lag = _lag(at, end.offset) if at and end else None
        if lag is not None and (counted is None or topic in counted):
            lag = counted[topic].get(partition) if counted else None
        found.append(
            PositionShown(
                topic, partition, str(at.offset) if at else None, str(end.offset) if end else None, lag,
                at.metadata if at else "", owners.get((topic, partition)), trouble,
            )
        )  # fmt: skip
    return found


def _lag(at: GroupPosition, end: int) -> int:
    return max(end - at.offset, 0) if at.lag is None else at.lag


def existing(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Only existing partitions: committed offsets outlive a deleted topic."""
    names = sorted({topic for topic, _ in partitions})
    topics = cluster.retrying(lambda: cluster.refresh(names)) if names else []
    there = {(t.name, p.partition_index) for t in topics if not t.error_code for p in t.partitions}
    return [key for key in partitions if key in there]


def _total(positions: list[PositionShown]) -> int | None:
    if any(position.trouble for position in positions):
        return None
    known = [position.lag for position in positions if position.lag is not None]
    return sum(known) if known else None


def _history(question: ApiQuestion, group: str, positions: list[PositionShown]) -> list[LagSeries]:
    """Lag history per topic: from the nodes' metrics, or else from earlier requests here."""
    series, organisation = question.state.series, question.visitor.organisation
    sums: dict[str, int] = {}
    for position in positions:
        if position.lag is not None:
            sums[position.topic] = sums.get(position.topic, 0) + position.lag
    now_s = time.time()
    for topic, lag in sums.items():
        series.add(("lag", organisation, group, topic), now_s, lag)
    return [LagSeries(topic, series.points(("lag", organisation, group, topic))) for topic in sorted(sums)]


def _member(member: GroupMember) -> MemberShown:
    host = member.client_host.removeprefix("/")
    return MemberShown(member.member_id, member.group_instance_id, member.client_id, host, member.assigned)
