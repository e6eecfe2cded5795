"""Metadata: nodes, topics and who leads what. Answered from this node's copy of the catalogue."""

from __future__ import annotations

import asyncio

from headrace.broker import authorized
from headrace.broker.broker import Broker
from headrace.broker.creation import auto_create
from headrace.broker.dispatch import Call
from headrace.broker.flow import Turns
from headrace.broker.topic_names import check_topic_name
from headrace.store.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.schema import ZERO_UUID


async def handle(call: Call, request: MetadataRequest) -> MetadataResponse:
    broker = call.broker
    store = broker.store
    operations = authorized.TOPIC if request.include_topic_authorized_operations else authorized.NOT_ASKED
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [
            describe(broker, store.catalogue.by_name[name], operations) for name in sorted(store.catalogue.by_name)
        ]
    else:
        may_create = request.allow_auto_topic_creation and broker.options.auto_create_topics
        topics = await _each_asked(broker, request.topics, may_create, operations)
    cluster = authorized.CLUSTER if request.include_cluster_authorized_operations else authorized.NOT_ASKED
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node.id, node.host, node.port) for node in store.nodes.live],
        cluster_id=store.cluster_id,
        controller_id=store.nodes.controller.id,
        topics=topics,
        cluster_authorized_operations=cluster,
    )


async def _each_asked(
    broker: Broker, asked: list[MetadataRequestTopic], may_create: bool, operations: int
) -> list[MetadataResponseTopic]:
    """Each topic once, however often it is named: the answer must not be larger than what there is to tell."""
    turns = Turns()
    answers = []
    for topic in {(topic.name, topic.topic_id): topic for topic in asked}.values():
        if turns.is_over():
            await asyncio.sleep(0)
        answers.append(await _asked(broker, topic, may_create, operations))
    return answers


async def _asked(
    broker: Broker, asked: MetadataRequestTopic, may_create: bool, operations: int
) -> MetadataResponseTopic:
    by_id = asked.topic_id != ZERO_UUID
    name = asked.name or ""
    try:
        if not by_id:
            check_topic_name(name)
        try:
            topic = await broker.find_topic(name, asked.topic_id, by_id=by_id)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not may_create:
                raise
            topic = await auto_create(broker, name)
        return describe(broker, topic, operations)
    except KafkaError as error:
        shown = asked.name if not by_id else None
        return MetadataResponseTopic(error_code=error.code, name=shown, topic_id=asked.topic_id)


def describe(broker: Broker, topic: Topic, operations: int) -> MetadataResponseTopic:
    """A topic as Metadata shows it."""
    nodes = broker.store.nodes
    partitions = []
    for number in range(topic.partitions):
        leader = nodes.leader(topic.uuid, number).id
        epoch = topic.epochs.get(number, 0)
        partitions.append(
            MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[leader], isr_nodes=[leader]
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.uuid, partitions=partitions, topic_authorized_operations=operations
    )
