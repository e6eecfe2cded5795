"""OffsetCommit: stores offsets of a group in one atomic write; a bad partition does not affect the others.

As in Kafka, a partition that does not exist is an error whatever the group's state, and a commit of such partitions
alone does not reach the group; the group's error takes precedence over metadata that is too long.
"""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized
from headrace.groups.classic.answers import CommitAnswer
from headrace.groups.classic.events import Commit
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.owned.groups import Committed
from headrace.store.redis.errors import StoreError
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.topic_partition import TopicPartition

_IDS_SINCE = 10


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    try:
        call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    except NotAuthorized as denied:
        return _refused(request, denied.code)
    offsets: dict[TopicPartition, Committed] = {}
    known: list[OffsetCommitResponsePartition] = []
    for asked in request.topics:
        answers = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=[])
        response.topics.append(answers)
        topic, refusal = await _topic(call, asked.name, asked.topic_id)
        for partition in asked.partitions:
            answer = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            if topic is None or not 0 <= partition.partition_index < topic.partitions:
                answer.error_code = refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            known.append(answer)
            answer.error_code = _check(call, partition)
            if not answer.error_code:
                offsets[topic.name, partition.partition_index] = _committed(call, topic, partition)
    if known:
        error = (await call.ask_group(Operation.READ, _commit(call, request, offsets), CommitAnswer)).error
        for answer in known:
            answer.error_code = error or answer.error_code
    return response


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """All partitions with one error: there is no other room for it."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.topic_id,
                topic.name,
                [OffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _commit(call: Call, request: OffsetCommitRequest, offsets: dict[TopicPartition, Committed]) -> Commit:
    return Commit(
        token=call.new_token(),
        group_id=request.group_id,
        version=call.version,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
        offsets=offsets,
    )


async def _topic(call: Call, name: str, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
    try:
        return await call.topic(Operation.READ, name, topic_id, by_id=call.version >= _IDS_SINCE), ErrorCode.NONE
    except StoreError:
        return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
    except KafkaError as error:
        return None, error.code


def _check(call: Call, asked: OffsetCommitRequestPartition) -> ErrorCode:
    if len((asked.committed_metadata or "").encode()) > call.broker.options.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _committed(call: Call, topic: Topic, asked: OffsetCommitRequestPartition) -> Committed:
    return Committed(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        call.commit_time_ms(),
        topic.id,
    )
