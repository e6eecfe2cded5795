"""OffsetForLeaderEpoch: the end of an epoch, so that a consumer notices lost records (KIP-320)."""

from __future__ import annotations

import asyncio

from headrace.broker.call import Call
from headrace.broker.network.flow import Turns
from headrace.security.acls import Operation
from headrace.wire.errors import KafkaError
from headrace.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    topics = []
    turns = Turns()
    for asked in request.topics:
        answers = []
        for partition in asked.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            answers.append(await _answer(call, asked.topic, partition))
        topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


async def _answer(call: Call, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        topic = await call.topic(Operation.DESCRIBE, name)
        partition = await call.led_partition(topic, asked.partition)
        await partition.confirm_end()
        partition.check_leader_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end = partition.epoch_end(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
