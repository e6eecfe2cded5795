"""OffsetDelete: deletes committed offsets of topics that no member reads."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized
from headrace.groups.classic.answers import OffsetDeleteAnswer
from headrace.groups.classic.events import OffsetDelete
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.store.redis.errors import StoreError
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    try:
        call.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
    except NotAuthorized as error:
        return OffsetDeleteResponse(error_code=error.code)
    denied = {t.name for t in request.topics if not call.may(Operation.READ, ResourceType.TOPIC, t.name)}
    asked = [(topic.name, [row.partition_index for row in topic.partitions]) for topic in request.topics]
    places = frozenset((name, number) for name, numbers in asked for number in numbers if name not in denied)
    delete = OffsetDelete(token=call.new_token(), group_id=request.group_id, version=call.version, places=places)
    try:
        found = {name: await call.find_topic(Operation.READ, name) for name, _ in asked if name not in denied}
    except StoreError:
        return OffsetDeleteResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = await call.ask_group(Operation.DELETE, delete, OffsetDeleteAnswer)
    if answer.error:
        return OffsetDeleteResponse(error_code=answer.error)
    call.note("deleted offsets", group=request.group_id, topics=sorted({name for name, _ in places}))
    response = OffsetDeleteResponse()
    for name, numbers in asked:
        if name in denied:
            codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(numbers)
        else:
            codes = [_code(found[name], number, name in answer.subscribed) for number in numbers]
        rows = [OffsetDeleteResponsePartition(number, code) for number, code in zip(numbers, codes, strict=True)]
        response.topics.append(OffsetDeleteResponseTopic(name, rows))
    return response


def _code(topic: Topic | None, number: int, subscribed: bool) -> ErrorCode:
    if topic is None or not 0 <= number < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
