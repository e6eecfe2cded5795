"""Produce: batches into the log.

The request's bytes are checked and handed to the partitions' writers as they are; the records inside are not looked
at, except on a compacted topic, where each needs a key, and in the format `stream`, where each becomes an entry. Each
partition gets its own answer.
"""

from __future__ import annotations

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.dispatch import Call, CloseConnection
from headrace.broker.flow import Turns
from headrace.broker.recompression import recompress
from headrace.broker.topic_configs import TopicPolicy
from headrace.store.catalogue import Topic
from headrace.store.partitions import AnyPartition
from headrace.store.writer import Appended
from headrace.wire.batch import BatchError, BatchHeader, check_produced, read_header, stamp_append_time
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.records import check_records

_IDS_SINCE = 13
_ZSTD_SINCE = 7
_NO_TIME = -1
_TRANSACTIONS = "Transactions are not supported by this broker; remove transactional.id."

_NO_REFUSAL = KafkaError(ErrorCode.NONE)

Waiting = tuple[PartitionProduceResponse, AnyPartition, "asyncio.Future[Appended]"]


async def handle(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    response = ProduceResponse()
    async with call.connection.submitting:
        waiting = await _submit(call, request, response)
    for answer, partition, appended in waiting:
        try:
            answer.base_offset, _, append_time_ms = await appended
            if append_time_ms is not None:
                answer.log_append_time_ms = append_time_ms
            answer.log_start_offset = partition.log_start
        except KafkaError as error:
            answer.log_append_time_ms = _NO_TIME
            error = _verdict(call, partition, error)
            _refuse(answer, error.code, error.message)
    if request.acks == 0:
        _close_on_error(response)
        return None
    return response


def _verdict(call: Call, partition: AnyPartition, error: KafkaError) -> KafkaError:
    is_settled = call.broker.store.nodes.is_settled
    return call.connection.refused_batches.verdict(partition.topic, partition.number, error, is_settled=is_settled)


async def _submit(call: Call, request: ProduceRequest, response: ProduceResponse) -> list[Waiting]:
    """Hands each batch to its partition, or refuses it; the batches whose outcome is to come."""
    waiting: list[Waiting] = []
    turns = Turns()
    for data in request.topic_data:
        answers = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        response.responses.append(answers)
        topic, refusal = await _topic(call, request, data.name, data.topic_id)
        for partition_data in data.partition_data:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = PartitionProduceResponse(index=partition_data.index, base_offset=-1, log_append_time_ms=_NO_TIME)
            answers.partition_responses.append(answer)
            try:
                if topic is None:
                    raise refusal
                waiting.append(await _append(call, topic, request, partition_data, answer))
            except KafkaError as error:
                if topic is not None:
                    call.connection.refused_batches.note(topic, partition_data.index, error)
                _refuse(answer, error.code, error.message)
            except BatchError as error:
                _refuse(answer, error.error_code, str(error))
    return waiting


async def _topic(call: Call, request: ProduceRequest, name: str, uuid: bytes) -> tuple[Topic | None, KafkaError]:
    """The topic, or why nothing of it can be produced."""
    try:
        if request.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it may be -1, 0 or 1.")
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _TRANSACTIONS)
        return await call.broker.find_topic(name, uuid, by_id=call.version >= _IDS_SINCE), _NO_REFUSAL
    except KafkaError as error:
        return None, error


async def _append(
    call: Call, topic: Topic, request: ProduceRequest, data: PartitionProduceData, answer: PartitionProduceResponse
) -> Waiting:
    broker = call.broker
    partition = await broker.led_partition(topic, data.index)
    if broker.store.memory_is_full:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The store is nearly full.")
    if not isinstance(data.records, memoryview):
        raise KafkaError(ErrorCode.INVALID_RECORD, "A produced partition holds exactly one batch; this one has none.")
    policy = broker.policy(topic)
    header = check_produced(data.records, policy.max_message_bytes, zstd=call.version >= _ZSTD_SINCE)
    records = data.records
    if not (policy.is_stream and policy.log_append_time):  # there the store gives the time
        header = _set_time(broker, policy, records, header, answer)
    if policy.compression is not None and not policy.is_stream:
        records, header = recompress(records, header, policy.compression, policy.max_message_bytes)
    if policy.compacts:
        check_records(records, keys_required=True)
    timeout_ms = min(max(request.timeout_ms, 0), broker.options.store_wait_ms)
    appended = partition.writer.submit(records, header, timeout_ms / 1000)
    if header.producer_id >= 0:
        call.connection.refused_batches.watch(topic, data.index, appended)
    return answer, partition, appended


def _set_time(
    broker: Broker, policy: TopicPolicy, batch: memoryview, header: BatchHeader, answer: PartitionProduceResponse
) -> BatchHeader:
    """Gives the batch the broker's time where the topic says so; otherwise refuses a time that is too far off."""
    now_ms = broker.store.now_ms()
    if policy.log_append_time:
        stamp_append_time(batch, 0, now_ms)
        answer.log_append_time_ms = now_ms
        return read_header(batch)
    if header.max_timestamp - now_ms > policy.timestamp_after_max_ms or (
        now_ms - header.base_timestamp > policy.timestamp_before_max_ms and header.base_timestamp >= 0
    ):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"A timestamp in {header.base_timestamp} to {header.max_timestamp} is too far from the broker's {now_ms}.",
        )
    return header


def _refuse(answer: PartitionProduceResponse, code: int, message: str | None) -> None:
    answer.error_code = code
    answer.error_message = message


def _close_on_error(response: ProduceResponse) -> None:
    """A producer that asked for no answer learns of an error by losing the connection, as Kafka does it."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = ErrorCode(partition.error_code).name
                raise CloseConnection(f"a produce without acks failed: {topic.name}-{partition.index}: {code}")
