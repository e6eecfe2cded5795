"""DeleteRecords: moves the log start of partitions up to an offset, and frees what is before it."""

from __future__ import annotations

from headrace.broker.administration import in_turn
from headrace.broker.call import Call
from headrace.broker.topics.names import check_not_internal
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1
_NO_OFFSET = -1


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for asked in request.topics:
        answers = DeleteRecordsTopicResult(name=asked.name)
        response.topics.append(answers)
        async for partition in in_turn(asked.partitions):
            result = DeleteRecordsPartitionResult(partition.partition_index, _NO_OFFSET)
            answers.partitions.append(result)
            try:
                result.low_watermark = await _delete(call, asked.name, partition.partition_index, partition.offset)
            except KafkaError as error:
                result.error_code = error.code
    return response


async def _delete(call: Call, name: str, number: int, offset: int) -> int:
    """The log start afterwards."""
    topic = await call.topic(Operation.DELETE, name)
    check_not_internal(topic.name)
    partition = await call.led_partition(topic, number)
    if not call.broker.policy(topic).allows_delete_records:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {partition!r} can not be deleted due to the configured policy",
        )
    await partition.confirm_up_to(offset)
    await partition.copies.settle()
    high_watermark = partition.high_watermark
    target = high_watermark if offset == _HIGH_WATERMARK else offset
    if (offset == _HIGH_WATERMARK or target > high_watermark) and partition.copies.may_be_behind():
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"The end of {partition!r} is not known yet.")
    if not 0 <= target <= high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {target} for partition {partition!r} is not valid")
    await partition.delete_before(target)
    call.note("deleted records", topic=name, partition=number, before=target)
    return partition.log_start
