"""OffsetFetch: where a group committed. -1 where it did not, and for a group that does not exist; neither is an error.

Versions up to 7 ask for one group, later ones for several; from 10 on topics are named by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.broker.dispatch import Call
from headrace.broker.live_group import LiveGroup
from headrace.store.catalogue import Topic
from headrace.store.errors import StoreError
from headrace.store.groups import Committed
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

_GROUP_ERROR_SINCE = 2
_MANY_SINCE = 8
_IDS_SINCE = 10
_NONE = Committed(-1, -1, "", 0, "")


class _Found(NamedTuple):
    """A topic's partitions as they were asked for, with what is committed."""

    name: str
    topic_id: bytes
    partitions: list[OffsetFetchResponsePartitions]


async def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= _MANY_SINCE:
        return OffsetFetchResponse(groups=[await _group(call, asked) for asked in request.groups])
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    found = await _group(call, OffsetFetchRequestGroup(group_id=request.group_id, topics=topics))
    if found.error_code and call.version < _GROUP_ERROR_SINCE:
        found.topics = _refused(topics or [], found.error_code)
    return OffsetFetchResponse(error_code=found.error_code, topics=[_old_form(topic) for topic in found.topics])


def _refused(topics: list[OffsetFetchRequestTopics], error_code: int) -> list[OffsetFetchResponseTopics]:
    """Version 1 has no place for a group's error but its partitions."""
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


async def _group(call: Call, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        live = await call.broker.coordinator.find(asked.group_id)
        topics = asked.topics
        found = _all(call, live) if topics is None else [await _topic(call, live, topic) for topic in topics]
    except StoreError:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
    rows = [OffsetFetchResponseTopics(topic.topic_id, topic.name, topic.partitions) for topic in found]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=rows)


def _all(call: Call, live: LiveGroup) -> Iterable[_Found]:
    """Everything that the group committed, in topics that still are."""
    found: dict[str, _Found] = {}
    for name, number in sorted(live.offsets):
        committed = call.broker.coordinator.valid_offset(live, (name, number))
        if committed is not None:
            uuid = call.broker.store.catalogue.by_name[name].uuid
            found.setdefault(name, _Found(name, uuid, [])).partitions.append(_row(number, committed))
    return found.values()


async def _topic(call: Call, live: LiveGroup, asked: OffsetFetchRequestTopics) -> _Found:
    by_id = call.version >= _IDS_SINCE
    topic: Topic | None = None
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        topic = await call.broker.find_topic(asked.name, asked.topic_id, by_id=by_id)
    except StoreError:
        raise
    except KafkaError as error:
        missing = error.code
    rows = []
    for number in asked.partition_indexes:
        if topic is None or not 0 <= number < topic.partitions:
            rows.append(_row(number, _NONE, missing if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            rows.append(_row(number, call.broker.coordinator.valid_offset(live, (topic.name, number)) or _NONE))
    return _Found(asked.name, asked.topic_id if by_id else ZERO_UUID, rows)


def _row(number: int, committed: Committed, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(number, committed.offset, committed.leader_epoch, committed.metadata, error)
