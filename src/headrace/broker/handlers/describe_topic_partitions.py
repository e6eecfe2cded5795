"""DescribeTopicPartitions: topics in the order of their names, a page of partitions at a time (KIP-966)."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import NotAuthorized
from headrace.broker.topics.names import check_topic_name, is_internal
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_topic_partitions import (
    CursorResult,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.wire.offsets_topic import OFFSETS_TOPIC

_PAGE_MAX = 2_000
"""Partitions in one answer, whatever the client asks: Kafka's default."""


async def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    await call.broker.store.takeovers.settle()
    await call.look_again()
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    start = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    if cursor and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refused(asked)
    names = sorted(
        name for name in asked or {topic.name for topic in call.topics(Operation.DESCRIBE)} if name >= start[0]
    )
    left = max(min(_PAGE_MAX, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = start[1] if name == start[0] else 0
        if left == 0:
            response.next_cursor = CursorResult(name, first)
            break
        try:
            topic = await _find(call, name)
        except KafkaError as error:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=error.code,
                    name=name,
                    is_internal=is_internal(name) and not isinstance(error, NotAuthorized),
                    topic_authorized_operations=call.operations(ResourceType.TOPIC, name),
                )
            )
            continue
        until = min(first + left, topic.partitions)
        response.topics.append(_describe(call, topic, range(first, until)))
        left -= max(until - first, 0)
        if until < topic.partitions:
            response.next_cursor = CursorResult(name, until)
            break
    return response


async def _find(call: Call, name: str) -> Topic:
    call.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
    check_topic_name(name)
    topic = await call.find_topic(Operation.DESCRIBE, name)
    if topic is None and name == OFFSETS_TOPIC:
        topic = await call.offsets_topic()
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _describe(call: Call, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.uuid,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=call.operations(ResourceType.TOPIC, topic.name),
    )
    for number in numbers:
        replicas = [node.id for node in call.broker.store.nodes.replicas(topic, number)]
        described.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=replicas[0],
                leader_epoch=topic.epochs.get(number, 0),
                replica_nodes=replicas,
                isr_nodes=replicas,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return described


def _refused(names: set[str]) -> DescribeTopicPartitionsResponse:
    """The response has no room for an error of its own: each topic carries it."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(names)
        ]
    )
