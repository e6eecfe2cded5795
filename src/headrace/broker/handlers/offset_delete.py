"""OffsetDelete: forgets commits of topics that nobody in the group reads."""

from __future__ import annotations

from headrace.broker.coordinator import new_token, places_of
from headrace.broker.dispatch import Call
from headrace.groups.events import OffsetDeleteCheck
from headrace.store.catalogue import Topic
from headrace.store.errors import StoreError
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    asked = [(topic.name, [row.partition_index for row in topic.partitions]) for topic in request.topics]
    check = OffsetDeleteCheck(
        token=new_token(), group_id=request.group_id, version=call.version, topics=frozenset(name for name, _ in asked)
    )
    try:
        error, subscribed = await call.broker.coordinator.delete_offsets(check, places_of(asked))
    except StoreError:
        return OffsetDeleteResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if error:
        return OffsetDeleteResponse(error_code=error)
    topics = []
    for name, numbers in asked:
        topic = await call.broker.store.catalogue.find(name)
        rows = [OffsetDeleteResponsePartition(number, _code(topic, number, name in subscribed)) for number in numbers]
        topics.append(OffsetDeleteResponseTopic(name, rows))
    return OffsetDeleteResponse(topics=topics)


def _code(topic: Topic | None, number: int, subscribed: bool) -> ErrorCode:
    if topic is None or not 0 <= number < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
