"""DescribeProducers: the producers of a partition as its leader knows them, with their open transactions."""

from __future__ import annotations

from headrace.broker.administration import in_turn, message_of
from headrace.broker.call import Call
from headrace.security.acls import Operation
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NOTHING_OPEN = -1


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Each partition once, however often it is named, which bounds the answer."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    response = DescribeProducersResponse()
    for name, numbers in asked.items():
        rows = TopicResponse(name, [])
        response.topics.append(rows)
        async for number in in_turn(numbers):
            row = PartitionResponse(number)
            rows.partitions.append(row)
            try:
                row.active_producers = await _producers(call, name, number)
            except KafkaError as error:
                row.error_code, row.error_message = error.code, message_of(error)
    return response


async def _producers(call: Call, name: str, number: int) -> list[ProducerState]:
    topic = await call.topic(Operation.READ, name)
    partition = await call.led_partition(topic, number)
    if partition.is_stale:
        await partition.confirm()
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_seen_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=partition.producers.open.get(producer_id, _NOTHING_OPEN),
        )
        for producer_id, producer in partition.producers.by_id.items()
    ]
