"""Metadata: nodes, topics and leaders, answered from this node's cached catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.broker.authorized import NOT_ASKED, cluster_operations
from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.network.flow import Turns
from headrace.broker.rights.asking import NotAuthorized
from headrace.broker.topics.creation import auto_create
from headrace.broker.topics.names import check_topic_name, is_internal
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.nodes.endpoints import Node
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.offsets_topic import OFFSETS_TOPIC
from headrace.wire.schema import ZERO_UUID

Operations = Callable[[str], int]
"""The bits of `authorized operations` of a topic."""


async def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    broker = call.broker
    store = broker.store
    live: list[Node] | None = None
    while live is not store.nodes.live:  # no leader may be named that is not among the nodes
        live = store.nodes.live
        await store.takeovers.settle()
        topics = await _topics(call, request)
    asks_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node.id, at.host, at.port, node.rack or None)
            for node in live
            if (at := call.endpoint(node))
        ],
        cluster_id=store.cluster_id,
        controller_id=store.nodes.controller.id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(call) if asks_cluster else NOT_ASKED,
    )


async def _topics(call: Call, request: MetadataRequest) -> list[MetadataResponseTopic]:
    broker = call.broker
    operations = _operations_of(call) if request.include_topic_authorized_operations else _not_asked
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = sorted(call.topics(Operation.DESCRIBE), key=lambda topic: topic.name)
        turns, described = Turns(), []
        for topic in topics:
            if turns.is_over(topic.partitions):
                await asyncio.sleep(0)
            described.append(describe(broker, topic, operations(topic.name)))
        return described
    may_create = request.allow_auto_topic_creation and broker.options.auto_create_topics
    return await _each_asked(call, request.topics, may_create, operations)


def _operations_of(call: Call) -> Operations:
    return lambda name: call.operations(ResourceType.TOPIC, name)


def _not_asked(name: str) -> int:
    return NOT_ASKED


async def _each_asked(
    call: Call, asked: list[MetadataRequestTopic], may_create: bool, operations: Operations
) -> list[MetadataResponseTopic]:
    """Each topic once, however often it is named, which bounds the answer."""
    turns = Turns()
    answers = []
    for topic in {(topic.name, topic.topic_id): topic for topic in asked}.values():
        answers.append(await _asked(call, topic, may_create, operations))
        if turns.is_over(1 + len(answers[-1].partitions)):
            await asyncio.sleep(0)
    return answers


async def _asked(
    call: Call, asked: MetadataRequestTopic, may_create: bool, operations: Operations
) -> MetadataResponseTopic:
    by_id = asked.topic_id != ZERO_UUID
    name = asked.name or ""
    try:
        if not by_id:
            call.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
            check_topic_name(name)
        try:
            topic = await call.topic(Operation.DESCRIBE, name, asked.topic_id, by_id=by_id)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if name == OFFSETS_TOPIC:
                topic = await call.offsets_topic()
            elif may_create and not is_internal(name):
                topic = await auto_create(call, name)
            else:
                raise
        return describe(call.broker, topic, operations(topic.name))
    except KafkaError as error:
        if by_id:  # without a name there is nothing to be authorized for
            return MetadataResponseTopic(error_code=error.code, name=None, topic_id=asked.topic_id)
        if isinstance(error, NotAuthorized):
            return MetadataResponseTopic(error_code=error.code, name=name)
        return MetadataResponseTopic(
            error_code=error.code,
            name=name,
            is_internal=is_internal(name),
            topic_authorized_operations=operations(name),
        )


def describe(broker: Broker, topic: Topic, operations: int) -> MetadataResponseTopic:
    """A topic as Metadata shows it."""
    nodes = broker.store.nodes
    partitions = []
    for number in range(topic.partitions):
        replicas = [node.id for node in nodes.replicas(topic, number)]
        partitions.append(
            MetadataResponsePartition(
                partition_index=number,
                leader_id=replicas[0],
                leader_epoch=topic.epochs.get(number, 0),
                replica_nodes=replicas,
                isr_nodes=replicas,
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.uuid,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=operations,
    )
