"""TxnOffsetCommit: offsets of a group that take effect when the transaction is committed.

From version 5 on it also adds the group to the transaction; before, AddOffsetsToTxn has done so. The transaction is
checked first, and again once the offsets are stored: if it ended in between, they came too late for it.
"""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized
from headrace.groups.classic.answers import CommitAnswer
from headrace.groups.classic.events import TxnCommit
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.owned.groups import Committed, PendingCommit, PendingOffset
from headrace.store.redis.errors import StoreError
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_IDS_SINCE = 6
_IMPLICIT_SINCE = 5
_ABORTABLE_SINCE = 4
_LOADING_SINCE = 2


async def handle(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    try:
        call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    except NotAuthorized as error:
        return _refused(request, error.code)
    response = TxnOffsetCommitResponse()
    known: list[TxnOffsetCommitResponsePartition] = []
    committed: dict[tuple[str, int], Committed] = {}
    for asked in request.topics:
        answers = TxnOffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=[])
        response.topics.append(answers)
        topic, refusal = await _topic(call, asked.name, asked.topic_id)
        for partition in asked.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            if topic is None or not 0 <= partition.partition_index < topic.partitions:
                answer.error_code = refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            known.append(answer)
            answer.error_code = _check(call, partition)
            if not answer.error_code:
                committed[topic.name, partition.partition_index] = _committed(call, topic, partition)
    if known:
        code = _told(await _commit(call, request, committed), call.version)
        for answer in known:
            answer.error_code = code or answer.error_code
    return response


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [TxnOffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _commit(
    call: Call, request: TxnOffsetCommitRequest, committed: dict[tuple[str, int], Committed]
) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    producer = request.producer_id, request.producer_epoch
    adds = call.version >= _IMPLICIT_SINCE
    error, number = await call.join_transaction(request.transactional_id, producer, request.group_id, adds=adds)
    if error:
        return error
    offsets = {
        PendingOffset(request.producer_id, *place): PendingCommit(request.transactional_id, number, offset)
        for place, offset in committed.items()
    }
    event = TxnCommit(
        token=call.new_token(),
        group_id=request.group_id,
        version=call.version,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        offsets=offsets,
    )
    if error := (await call.ask_group(Operation.READ, event, CommitAnswer)).error:
        return error
    error, now = await call.join_transaction(request.transactional_id, producer, request.group_id, adds=False)
    return error if error or now == number else ErrorCode.INVALID_TXN_STATE


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """The error in terms of the request's version."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


async def _topic(call: Call, name: str, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
    try:
        return await call.topic(Operation.READ, name, topic_id, by_id=call.version >= _IDS_SINCE), ErrorCode.NONE
    except StoreError:
        return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
    except KafkaError as error:
        return None, error.code


def _check(call: Call, asked: TxnOffsetCommitRequestPartition) -> ErrorCode:
    too_long = len((asked.committed_metadata or "").encode()) > call.broker.options.offset_metadata_max_bytes
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else ErrorCode.NONE


def _committed(call: Call, topic: Topic, asked: TxnOffsetCommitRequestPartition) -> Committed:
    metadata = asked.committed_metadata or ""
    return Committed(asked.committed_offset, asked.committed_leader_epoch, metadata, call.commit_time_ms(), topic.id)
