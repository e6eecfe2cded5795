"""ListOffsets: start and end of a partition, and offsets by time."""

from __future__ import annotations

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.network.flow import Turns
from headrace.security.acls import Operation
from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.base import Partition
from headrace.store.unpacking import one_at_a_time
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.special_times import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""Versions that know a special value; in older ones it is a time like any other, and before all records."""

_NOT_AVAILABLE_SINCE = 5
"""KIP-207: a new leader's high watermark may be behind what was told before."""
_AT_ONCE = 32
_READ_COMMITTED = 1


async def handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    one_at_a_time()  # however many partitions are searched at once, others wait behind one batch of them
    response = ListOffsetsResponse()
    turns = Turns()
    for asked in request.topics:
        answers = ListOffsetsTopicResponse(name=asked.name)
        response.topics.append(answers)
        committed = request.isolation_level == _READ_COMMITTED
        for at in range(0, len(asked.partitions), _AT_ONCE):
            some = asked.partitions[at : at + _AT_ONCE]
            if all(partition.timestamp in (LATEST, EARLIEST) for partition in some):
                for partition in some:
                    if turns.is_over():
                        await asyncio.sleep(0)
                    answers.partitions.append(await _answer(call, asked.name, partition, committed))
            else:  # a lookup may have to wait for the lake
                answers.partitions += await asyncio.gather(*(_answer(call, asked.name, p, committed) for p in some))
    return response


async def _answer(call: Call, name: str, asked: ListOffsetsPartition, committed: bool) -> ListOffsetsPartitionResponse:
    try:
        topic = await call.topic(Operation.DESCRIBE, name)
        partition = await call.led_partition(topic, asked.partition_index)
        await partition.copies.settle()
        partition.check_leader_epoch(asked.current_leader_epoch)
        ends, may_be_behind = partition.ends, partition.copies.may_be_behind()
        bound = ends.stable_end if committed else ends.high_watermark
        offset, timestamp = await _find(call.broker, topic, partition, asked.timestamp, call.version)
        is_at_end = asked.timestamp == LATEST or (_is_of_record(asked.timestamp) and offset >= bound)
        if is_at_end and may_be_behind:
            raise KafkaError(_not_available(call.version), f"The end of {partition!r} is not known yet.")
        offset, timestamp = _before(bound, asked.timestamp, offset, timestamp)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=error.code, offset=-1, timestamp=-1
        )
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=partition.leader_epoch if offset >= 0 else -1,
    )


def _not_available(version: int) -> ErrorCode:
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= _NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE


def _before(bound: int, asked: int, offset: int, timestamp: int) -> tuple[int, int]:
    """The result, if it lies below the high watermark or the last stable offset."""
    if asked == LATEST:
        return min(offset, bound), timestamp
    return (-1, -1) if _is_of_record(asked) and offset >= bound else (offset, timestamp)


def _is_of_record(asked: int) -> bool:
    """Whether the offset of a record is looked for."""
    return asked >= 0 or asked == MAX_TIMESTAMP


async def _find(broker: Broker, topic: Topic, partition: Partition, timestamp: int, version: int) -> tuple[int, int]:
    """Offset and timestamp; (-1, -1) where there is no such record."""
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Timestamp {timestamp} has no meaning in version {version}.")
    if timestamp == LATEST:
        return partition.high_watermark, -1
    if timestamp == EARLIEST:
        return await partition.find_earliest(), -1
    if timestamp == EARLIEST_LOCAL:
        return max(await partition.find_earliest(), partition.local_start), -1
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return await _find_tiered(broker, topic, partition, timestamp), -1
    if timestamp == MAX_TIMESTAMP:
        return await partition.find_newest() or (-1, -1)
    return await partition.find_time(timestamp) or (-1, -1)


async def _find_tiered(broker: Broker, topic: Topic, partition: Partition, timestamp: int) -> int:
    """The last offset that the lake holds, or the first one behind it; -1 where there is none."""
    if not broker.policy(topic).is_tiered:
        return -1
    held = await broker.store.cold.held(partition.cold_name)
    end = min(held.end, partition.end) if held else partition.log_start
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return max(end, partition.log_start)
    return end - 1 if held else -1
