"""OffsetDelete: forgets commits of topics that nobody in the group reads."""

from __future__ import annotations

from headrace.broker.coordinator import new_token
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
        topics = {name: await call.broker.store.catalogue.find(name) for name, _ in asked}
    except StoreError:
        return OffsetDeleteResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    places = [(name, number) for name, numbers in asked for number in numbers]
    answer = await call.broker.coordinator.delete_offsets(check, places)
    if answer.error:
        return OffsetDeleteResponse(error_code=answer.error)
    response = OffsetDeleteResponse()
    for name, numbers in asked:
        codes = [_code(topics[name], number, name in answer.subscribed) for number in numbers]
        rows = [OffsetDeleteResponsePartition(number, code) for number, code in zip(numbers, codes, strict=True)]
        response.topics.append(OffsetDeleteResponseTopic(name, rows))
    return response


def _code(topic: Topic | None, number: int, subscribed: bool) -> ErrorCode:
    if topic is None or not 0 <= number < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
