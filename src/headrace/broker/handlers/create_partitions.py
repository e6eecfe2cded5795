"""CreatePartitions: more partitions for a topic, never fewer."""

from __future__ import annotations

from headrace.broker.administration import change_topic, duplicates, in_turn, message_of, tell_nodes
from headrace.broker.call import Call
from headrace.broker.topics.creation import check_partition_count, check_replicas
from headrace.security.acls import Operation
from headrace.store.cluster.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    await call.look_again()
    version = call.topics_version
    repeated = duplicates(asked.name for asked in request.topics)
    response = CreatePartitionsResponse()
    async for asked in in_turn({asked.name: asked for asked in request.topics}.values()):
        result = CreatePartitionsTopicResult(name=asked.name)
        response.results.append(result)
        try:
            if asked.name in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            await _create(call, asked, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_of(error)
    await tell_nodes(call, version)
    return response


async def _create(call: Call, asked: CreatePartitionsTopic, validate_only: bool) -> None:
    async def change(topic: Topic) -> None:
        await _check(call, topic, asked)
        if not validate_only:
            rows = enumerate(asked.assignments or [], start=topic.partitions)
            assignments = {number: row.broker_ids for number, row in rows}
            await call.add_partitions(topic, asked.count, assignments)

    await change_topic(call, Operation.ALTER, asked.name, change)


async def _check(call: Call, topic: Topic, asked: CreatePartitionsTopic) -> None:
    present = topic.partitions
    if asked.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if asked.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {asked.count} would not be an increase.",
        )
    added = asked.count - present
    if asked.assignments is not None:
        if len(asked.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(asked.assignments)} assignment(s) "
                "were specified.",
            )
        rows = [assignment.broker_ids for assignment in asked.assignments]
        await check_replicas(call.broker, rows, topic.replication_factor)
    check_partition_count(call, asked.count, added)
