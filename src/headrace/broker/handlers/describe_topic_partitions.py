"""DescribeTopicPartitions: topics in the order of their names, a page of partitions at a time (KIP-966)."""

from __future__ import annotations

from headrace.broker import authorized
from headrace.broker.administration import look_again
from headrace.broker.broker import Broker
from headrace.broker.dispatch import Call
from headrace.broker.topic_names import check_topic_name
from headrace.store.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_topic_partitions import (
    CursorResult,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

_PAGE_MAX = 2_000
"""Partitions in one answer, whatever the client asks: Kafka's default."""


async def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    broker = call.broker
    await look_again(broker)
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    start = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    if cursor and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refused(asked)
    names = sorted(name for name in asked or broker.store.catalogue.by_name if name >= start[0])
    left = max(min(_PAGE_MAX, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = start[1] if name == start[0] else 0
        if left == 0:
            response.next_cursor = CursorResult(name, first)
            break
        try:
            topic = await _find(broker, name)
        except KafkaError as error:
            response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=error.code, name=name))
            continue
        until = min(first + left, topic.partitions)
        response.topics.append(_describe(broker, topic, range(first, until)))
        left -= max(until - first, 0)
        if until < topic.partitions:
            response.next_cursor = CursorResult(name, until)
            break
    return response


async def _find(broker: Broker, name: str) -> Topic:
    check_topic_name(name)
    topic = await broker.store.catalogue.find(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _describe(broker: Broker, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name, topic_id=topic.uuid, topic_authorized_operations=authorized.TOPIC
    )
    for number in numbers:
        leader = broker.store.nodes.leader(topic.uuid, number).id
        described.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=topic.epochs.get(number, 0),
                replica_nodes=[leader],
                isr_nodes=[leader],
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
