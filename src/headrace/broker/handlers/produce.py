"""Produce: appends batches to the log.

Batches are checked by their headers and passed to the partitions' writers unchanged. Records are inspected only on
compacted topics, where each needs a key; in the format `stream`, where each becomes an entry; and for timestamps, if
the header cannot be right. Each partition gets its own result.

Inspecting a batch can take a while (`store/unpacking.py`). It keeps its place: a connection's batches enter the
partitions' queues in the order of sending, so later ones wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial

from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.dispatch import CloseConnection
from headrace.broker.network.flow import Turns
from headrace.broker.produce.recompression import recompress
from headrace.broker.produce.record_checks import RECORD_ERRORS_MOST, check_keys, check_record_times
from headrace.broker.produce.transactional import Transaction, begin, verification_of
from headrace.broker.topics.current_leaders import CurrentLeaders
from headrace.broker.topics.names import check_not_internal
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.appending import Appended
from headrace.store.partition.base import Partition
from headrace.store.topic_configs.policy import TopicPolicy
from headrace.wire.batch import BatchHeader, check_produced, read_header, stamp_append_time, unpacked_limit
from headrace.wire.batch_errors import BatchError, RecordError
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

IDS_SINCE = 13
ZSTD_SINCE = 7
NO_TIME = -1
ALL = -1
"""acks of a producer that wants its batches on replicas, too."""

_NO_REFUSAL = KafkaError(ErrorCode.NONE)

Waiting = tuple[PartitionProduceResponse, Partition, Awaitable[Appended]]


async def handle(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    response = ProduceResponse()
    async with call.connection.submitting:
        waiting = await _submit(call, request, response)
    call.connection.submitted(call.slot)
    for answer, partition, appended in waiting:
        try:
            result = await appended
            answer.base_offset = result.base_offset
            if result.append_time_ms is not None:
                answer.log_append_time_ms = result.append_time_ms
            answer.log_start_offset = partition.log_start
        except KafkaError as error:
            answer.log_append_time_ms = NO_TIME
            error = verdict(call, partition, error)
            _refuse(answer, error.code, error.message)
    if request.acks == 0:
        close_on_error(response)
        return None
    return response


def verdict(call: Call, partition: Partition, error: KafkaError) -> KafkaError:
    """The error that a producer gets for a batch that was not appended."""
    is_settled = call.broker.store.nodes.have_requests_come
    return call.connection.refused_batches.verdict(partition.topic, partition.number, error, is_settled=is_settled)


async def _submit(call: Call, request: ProduceRequest, response: ProduceResponse) -> list[Waiting]:
    """Queues each batch at its partition, or refuses it; returns the batches in flight."""
    waiting: list[Waiting] = []
    transaction = await begin(call, request)
    turns = Turns()
    names_left = RECORD_ERRORS_MOST
    leaders = CurrentLeaders(call)
    for data in request.topic_data:
        answers = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        response.responses.append(answers)
        topic, refusal = await _topic(call, request, data.name, data.topic_id)
        for partition_data in data.partition_data:
            if turns.is_over():
                await asyncio.sleep(0)
            answer = PartitionProduceResponse(index=partition_data.index, base_offset=-1, log_append_time_ms=NO_TIME)
            answers.partition_responses.append(answer)
            try:
                if topic is None:
                    raise refusal
                waiting.append(await _append(call, topic, request, partition_data, answer, transaction))
            except KafkaError as error:
                _refuse(answer, error.code, error.message)
                if topic is not None:
                    call.connection.refused_batches.note(topic, partition_data.index, error)
                    leaders.name_in_produce(topic, answer)
            except BatchError as error:
                _refuse(answer, error.error_code, str(error))
                answer.record_errors = _named(error.record_errors[:names_left])
                names_left -= len(answer.record_errors)
                if answer.record_errors and topic is not None:
                    known = call.known_partition(topic, partition_data.index)
                    answer.log_start_offset = known.log_start if known is not None else -1
    response.node_endpoints = leaders.endpoints(NodeEndpoint)
    return waiting


async def _topic(call: Call, request: ProduceRequest, name: str, uuid: bytes) -> tuple[Topic | None, KafkaError]:
    """The topic, or the error for all of its batches."""
    try:
        if request.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it may be -1, 0 or 1.")
        if request.transactional_id is not None:
            call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        topic = await call.topic(Operation.WRITE, name, uuid, by_id=call.version >= IDS_SINCE)
        check_not_internal(topic.name)
        return topic, _NO_REFUSAL
    except KafkaError as error:
        return None, error


async def _append(
    call: Call,
    topic: Topic,
    request: ProduceRequest,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    transaction: Transaction | None,
) -> Waiting:
    broker = call.broker
    partition = await _open_partition(call, topic, data.index)
    policy = broker.policy(topic)
    if request.acks == ALL and policy.replicas:
        await partition.copies.check()
    if not isinstance(data.records, memoryview):
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "A produced partition must contain exactly one batch; this one has none."
        )
    header = check_produced(data.records, policy.max_message_bytes, zstd=call.version >= ZSTD_SINCE)
    verification = verification_of(transaction, partition, header)
    records, packed = data.records, b""
    checks_times = policy.must_check_times(header, broker.store.clock.wall_ms())
    if checks_times:
        header = await check_record_times(records, header, policy, broker.store)
    looks_inside = policy.looks_inside
    if looks_inside:
        records, header, packed = await _look_inside(policy, partition, records, header)
    if checks_times or looks_inside:  # that may have taken a while
        partition = await _open_partition(call, topic, data.index)
        verification = verification_of(transaction, partition, header)
    if policy.log_append_time and not policy.is_stream:  # there the store gives the time
        answer.log_append_time_ms, header = stamp_time(broker, records)
    timeout_ms = min(max(request.timeout_ms, 0), broker.options.store_wait_ms)
    appended = partition.writer.submit(records, header, timeout_ms / 1000, packed, verification)
    if header.producer_id >= 0:
        call.connection.refused_batches.watch(topic, data.index, appended)
    if request.acks == ALL and policy.replicas:
        return (
            answer,
            partition,
            asyncio.ensure_future(partition.copies.confirmed(appended, header.count, request.timeout_ms / 1000)),
        )
    return answer, partition, appended


async def _open_partition(call: Call, topic: Topic, number: int) -> Partition:
    """A partition that may be written to now."""
    call.check_room()
    partition = await call.led_partition(topic, number)
    if partition.shard.memory.is_full:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The store is nearly full.")
    return partition


async def _look_inside(
    policy: TopicPolicy, partition: Partition, batch: memoryview, header: BatchHeader
) -> tuple[memoryview, BatchHeader, bytes]:
    """The batch as the topic wants it, its records checked where the topic asks for that, and packed for the store."""
    limit_bytes = unpacked_limit(len(batch), policy.max_message_bytes)
    unpacking = partition.context.unpacking
    codec = policy.compression
    if codec is not None and codec != header.compression and not policy.is_stream:
        work = partial(recompress, batch, header, codec, policy.max_message_bytes)
        batch, header = await unpacking.compressed(len(batch), limit_bytes, work)
    if policy.compacts:
        async with unpacking.records(batch, header, limit_bytes) as data:
            await unpacking.go_over(check_keys(data, header, repr(partition)))
    return batch, header, await partition.writer.pack(batch, header, limit_bytes)


def stamp_time(broker: Broker, batch: memoryview) -> tuple[int, BatchHeader]:
    """Gives the batch the broker's time."""
    now_ms = broker.store.clock.wall_ms()
    stamp_append_time(batch, 0, now_ms)
    return now_ms, read_header(batch)


def _refuse(answer: PartitionProduceResponse, code: int, message: str | None) -> None:
    answer.error_code = code
    answer.error_message = message


def _named(errors: Sequence[RecordError]) -> list[BatchIndexAndErrorMessage]:
    return [BatchIndexAndErrorMessage(error.place, error.message) for error in errors]


def close_on_error(response: ProduceResponse) -> None:
    """A producer that asked for no answer learns of an error by losing the connection, as Kafka does it."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = ErrorCode(partition.error_code).name
                raise CloseConnection(f"a produce with acks=0 failed: {topic.name}-{partition.index}: {code}")
