"""DeleteRecords: moves the log start of partitions up to an offset, and frees what lies before it."""

from __future__ import annotations

from headrace.broker.administration import in_turn
from headrace.broker.broker import Broker
from headrace.broker.dispatch import Call
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.wire.schema import ZERO_UUID

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
                result.low_watermark = await _delete(
                    call.broker, asked.name, partition.partition_index, partition.offset
                )
            except KafkaError as error:
                result.error_code = error.code
    return response


async def _delete(broker: Broker, name: str, number: int, offset: int) -> int:
    """The log start afterwards."""
    topic = await broker.find_topic(name, ZERO_UUID, by_id=False)
    partition = await broker.led_partition(topic, number)
    if not broker.policy(topic).allows_delete_records:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {partition!r} can not be deleted due to the configured policy",
        )
    await partition.confirm_up_to(offset)
    target = partition.end if offset == _HIGH_WATERMARK else offset
    if not 0 <= target <= partition.end:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {target} for partition {partition!r} is not valid")
    await partition.delete_before(target)
    return partition.log_start
