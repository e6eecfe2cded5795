"""OffsetFetch: committed offsets. -1 if nothing was committed or the group does not exist; neither is an error.

A partition that a topic does not have is an error. A topic that does not exist is not, if it is requested by name, as
in Kafka: it was deleted, and Java's consumers would stop on the error.

Versions up to 7 ask for one group, later ones for several; from 10 on topics are named by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from headrace.broker.call import Call
from headrace.broker.owned.thing import Thing
from headrace.broker.rights.asking import NotAuthorized
from headrace.groups.classic import Group
from headrace.security.acls import Operation
from headrace.store.cluster.identity import from_kafka_uuid
from headrace.store.cluster.owned.groups import Committed, PendingOffset
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.schema import ZERO_UUID

_MANY_SINCE = 8
_IDS_SINCE = 10
_AT_ONCE = 32
"""Groups of one request: each asks the store a question."""
_NONE = Committed(-1, -1, "", 0, "")


class _Found(NamedTuple):
    """The requested partitions of a topic with their committed offsets."""

    name: str
    topic_id: bytes
    partitions: list[OffsetFetchResponsePartitions]
    known_as: str
    """Its name, whatever it was asked for by."""


async def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= _MANY_SINCE:
        groups: list[OffsetFetchResponseGroup] = []
        for at in range(0, len(request.groups), _AT_ONCE):
            some = request.groups[at : at + _AT_ONCE]
            groups += await asyncio.gather(*(_group(call, asked, stable=request.require_stable) for asked in some))
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    found = await _group(call, asked, stable=request.require_stable)
    if found.error_code:
        found.topics = _refused(topics or [], found.error_code)
    return OffsetFetchResponse(error_code=found.error_code, topics=[_old_form(topic) for topic in found.topics])


def _refused(topics: list[OffsetFetchRequestTopics], error_code: int) -> list[OffsetFetchResponseTopics]:
    """Version 1 has no other place for a group's error, and in later ones aiokafka looks nowhere else."""
    rows = [[_row(number, _NONE, ErrorCode(error_code)) for number in topic.partition_indexes] for topic in topics]
    return [OffsetFetchResponseTopics(name=topic.name, partitions=r) for topic, r in zip(topics, rows, strict=True)]


def _old_form(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    rows = [
        OffsetFetchResponsePartition(
            row.partition_index, row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code
        )
        for row in topic.partitions
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=rows)


async def _group(call: Call, asked: OffsetFetchRequestGroup, *, stable: bool) -> OffsetFetchResponseGroup:
    try:
        group = await call.awaited_group(Operation.DESCRIBE, asked.group_id)
        topics = asked.topics
        found = _all(call, group) if topics is None else [await _topic(call, group, topic) for topic in topics]
        if stable:
            _hold_back(group, found := list(found))
    except NotAuthorized as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
    except KafkaError as error:
        is_elsewhere = error.code == ErrorCode.NOT_COORDINATOR
        code = ErrorCode.NOT_COORDINATOR if is_elsewhere else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    rows = [OffsetFetchResponseTopics(topic.topic_id, topic.name, topic.partitions) for topic in found]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=rows)


def _all(call: Call, group: Thing[Group]) -> Iterable[_Found]:
    """Everything that the group committed, in topics that still are."""
    found: dict[str, _Found] = {}
    for name, number in sorted(row for row in group.rows if not isinstance(row, PendingOffset)):
        committed = call.committed(Operation.DESCRIBE, group, (name, number))
        if committed is not None:
            uuid = from_kafka_uuid(committed.topic_id)
            found.setdefault(name, _Found(name, uuid, [], name)).partitions.append(_row(number, committed))
    return found.values()


async def _topic(call: Call, group: Thing[Group], asked: OffsetFetchRequestTopics) -> _Found:
    by_id = call.version >= _IDS_SINCE
    rows: list[OffsetFetchResponsePartitions]
    try:
        topic = await call.find_topic(Operation.DESCRIBE, asked.name, asked.topic_id, by_id=by_id)
    except NotAuthorized as error:
        rows = [_row(number, _NONE, error.code) for number in asked.partition_indexes]
        return _Found(asked.name, asked.topic_id if by_id else ZERO_UUID, rows, asked.name)
    rows = []
    for number in asked.partition_indexes:
        if topic is None:
            rows.append(_row(number, _NONE, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.NONE))
        elif not 0 <= number < topic.partitions:
            rows.append(_row(number, _NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            rows.append(_row(number, call.committed(Operation.DESCRIBE, group, (topic.name, number)) or _NONE))
    return _Found(asked.name, asked.topic_id if by_id else ZERO_UUID, rows, topic.name if topic else asked.name)


def _hold_back(group: Thing[Group], found: list[_Found]) -> None:
    """Partitions with an offset that is pending in a transaction are not answered yet: the client asks again."""
    pending = {(row.topic, row.partition) for row in group.rows if isinstance(row, PendingOffset)}
    for topic in found if pending else ():
        topic.partitions[:] = [
            _row(row.partition_index, _NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if (topic.known_as, row.partition_index) in pending and not row.error_code
            else row
            for row in topic.partitions
        ]


def _row(number: int, committed: Committed, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(number, committed.offset, committed.leader_epoch, committed.metadata, error)
