"""Offset resets: a dry run first, then the same plan executed. Only for groups without members."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from headrace.client import Admin, Cluster, Groups
from headrace.client.group_types import SHARE
from headrace.console.api.groups import existing
from headrace.console.api.topics import FORMAT, STREAM, configs_of
from headrace.console.endpoints import ApiQuestion
from headrace.console.errors import ApiError, bad
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

_EMPTY = "Empty"
_DIGITS_MAX = 20


class ResetOrder(msgspec.Struct, frozen=True):
    """The new position: `to` is earliest, latest, time (ms since 1970), offset or shift (by records)."""

    group: str
    to: str
    value: int | str = 0
    """May be text, because offsets of format `stream` exceed JavaScript's largest integer."""
    topic: str = ""
    """One topic; without it, all topics with committed offsets."""
    partitions: list[int] = []
    """Partitions of the topic; empty means all."""
    execute: bool = False

    @property
    def number(self) -> int:
        text = str(self.value)
        if len(text) > _DIGITS_MAX or not text.removeprefix("-").isdecimal():
            raise bad("value must be a whole number.")
        return int(text)


class ResetRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    before: str | None
    after: str


class ResetShown(msgspec.Struct, frozen=True):
    group: str
    executed: bool
    rows: list[ResetRow]


def reset_offsets(cluster: Cluster, question: ApiQuestion) -> ResetShown:
    order: ResetOrder = question.body
    _refuse_active(cluster, order.group)
    committed = {key: at.offset for key, at in Groups(cluster).offsets(order.group).items()}
    keys = _chosen(cluster, order, committed)
    wanted = _moved(cluster, order, keys, committed)
    if order.execute and wanted:
        _commit(cluster, order.group, wanted)
    rows = [
        ResetRow(topic, partition, None if before is None else str(before), str(after))
        for (topic, partition), after in sorted(wanted.items())
        for before in [committed.get((topic, partition))]
    ]
    return ResetShown(order.group, order.execute and bool(wanted), rows)


def _refuse_active(cluster: Cluster, group: str) -> None:
    try:
        info = Groups(cluster).describe_group(group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if info.type == SHARE:
        raise bad(f"{group} is a share group, which has no committed offsets.")
    if info.state != _EMPTY:
        raise _active(group, info.state)


def _active(group: str, state: str) -> ApiError:
    return ApiError(HTTPStatus.CONFLICT, f"Group {group} is {state}: stop its members first.", "NON_EMPTY_GROUP")


def _chosen(cluster: Cluster, order: ResetOrder, committed: dict[TopicPartition, int]) -> list[TopicPartition]:
    if not order.topic:
        return existing(cluster, sorted(committed))
    there = [p.index for p in Admin(cluster).describe_topic(order.topic).partitions]
    if missing := sorted(set(order.partitions) - set(there)):
        raise bad(f"{order.topic} has no partition {missing[0]}.")
    return [(order.topic, index) for index in order.partitions or there]


def _moved(
    cluster: Cluster, order: ResetOrder, keys: list[TopicPartition], committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The new offsets, always within the partition's range."""
    if not keys:
        return {}
    admin = Admin(cluster)
    start = {key: at.offset for key, at in admin.list_offsets(dict.fromkeys(keys, EARLIEST)).items()}
    end = {key: at.offset for key, at in admin.list_offsets(dict.fromkeys(keys, LATEST)).items()}
    match order.to:
        case "earliest":
            return start
        case "latest":
            return end
        case "time":
            found = admin.list_offsets(dict.fromkeys(keys, max(order.number, 0)))
            return {key: at.offset if at.offset >= 0 else end[key] for key, at in found.items()}
        case "offset":
            wanted = dict.fromkeys(keys, order.number)
        case "shift":
            formats = configs_of(cluster, {topic for topic, _ in keys}, FORMAT)
            if streams := [topic for topic, form in formats.items() if form == STREAM]:
                raise bad(f"In {streams[0]} offsets are times (headrace.format=stream): give a time instead.")
            wanted = {key: committed[key] + order.number for key in keys if key in committed}
        case _:
            raise bad("to must be earliest, latest, time, offset or shift.")
    return {key: min(max(at, start[key]), end[key]) for key, at in wanted.items()}


def _commit(cluster: Cluster, group: str, wanted: dict[TopicPartition, int]) -> None:
    try:
        Groups(cluster).set_offsets(group, wanted)
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            raise _active(group, "active again") from None
        raise
