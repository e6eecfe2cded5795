"""CreateTopics: each topic is made, or refused with the reason, by itself; `validate_only` stops short of making it."""

from __future__ import annotations

from headrace.broker.administration import duplicates, in_turn, look_again, message_of
from headrace.broker.broker import Broker
from headrace.broker.creation import (
    DEFAULT,
    REPLICATION_FACTOR,
    check_new_name,
    check_new_topic,
    check_replicas,
    check_replication_factor,
)
from headrace.broker.dispatch import Call
from headrace.broker.tiering import check_tiering
from headrace.broker.topic_configs import check_new_configs, describe_configs
from headrace.store.catalogue import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_INTERNAL = "__cluster_metadata"


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    await look_again(call.broker)
    repeated = duplicates(asked.name for asked in request.topics)
    response = CreateTopicsResponse()
    answered = set()
    planned: list[int] = []
    async for asked in in_turn(request.topics):
        if asked.name in answered:
            continue
        answered.add(asked.name)
        try:
            if asked.name in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            response.topics.append(await _create(call.broker, asked, planned, request.validate_only))
        except KafkaError as error:
            response.topics.append(
                CreatableTopicResult(name=asked.name, error_code=error.code, error_message=message_of(error))
            )
    return response


async def _create(
    broker: Broker, asked: CreatableTopic, planned: list[int], validate_only: bool
) -> CreatableTopicResult:
    if asked.name == _INTERNAL:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {_INTERNAL} is prohibited.")
    check_new_name(broker, asked.name)
    configs = _configs(asked)
    partitions = _partitions(broker, asked)
    check_new_topic(broker, asked.name, partitions, planned)
    await check_tiering(broker, {}, configs)
    if validate_only:
        planned.append(partitions)
        return _result(broker, asked.name, partitions, configs, None)
    topic = await broker.store.catalogue.create(asked.name, partitions, configs)
    return _result(broker, asked.name, partitions, configs, topic)


def _configs(asked: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in asked.configs if config.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return check_new_configs({config.name: config.value or "" for config in asked.configs})


def _partitions(broker: Broker, asked: CreatableTopic) -> int:
    """How many partitions the topic gets, from the number or the assignments of the request."""
    if asked.assignments:
        return _assigned_partitions(broker, asked, asked.assignments)
    check_replication_factor(broker, asked.replication_factor)
    return broker.options.default_partitions if asked.num_partitions == DEFAULT else asked.num_partitions


def _assigned_partitions(broker: Broker, asked: CreatableTopic, assignments: list[CreatableReplicaAssignment]) -> int:
    for value, field in ((asked.replication_factor, "replication factor"), (asked.num_partitions, "numPartitions")):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
    numbers = [assignment.partition_index for assignment in assignments]
    if repeated := duplicates(numbers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Found multiple manual partition assignments for partition {min(repeated)}",
        )
    check_replicas(broker, (assignment.broker_ids for assignment in assignments))
    if sorted(numbers) != list(range(len(numbers))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return len(numbers)


def _result(
    broker: Broker, name: str, partitions: int, configs: dict[str, str], topic: Topic | None
) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=name, error_message=None, num_partitions=partitions, replication_factor=REPLICATION_FACTOR
    )
    if topic is not None:
        result.topic_id = topic.uuid
    result.configs = [
        CreatableTopicConfigs(
            name=config.row.name,
            value=config.value,
            read_only=config.row.is_read_only,
            config_source=config.source,
        )
        for config in describe_configs(configs, broker.options, topic.ulid if topic else "")
    ]
    return result
