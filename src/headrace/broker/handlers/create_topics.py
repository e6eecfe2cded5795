"""CreateTopics: creates each topic, or rejects it with the reason, independently; `validate_only` only checks."""

from __future__ import annotations

from headrace.broker.administration import duplicates, in_turn, message_of, tell_nodes
from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.configs.topics import check_new_configs, describe_configs
from headrace.broker.tiering.rules import check_tiering
from headrace.broker.topics.copies import warn_of_copies
from headrace.broker.topics.creation import (
    DEFAULT,
    check_new_name,
    check_new_topic,
    check_replicas,
    check_replication_factor,
)
from headrace.broker.topics.names import is_internal
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.catalogue import Placing, Topic
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_METADATA_LOG = "__cluster_metadata"


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    await call.look_again()
    version = call.topics_version
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
            if asked.name != _METADATA_LOG:
                call.check_create_topic(asked.name)
            response.topics.append(await _create(call, asked, planned, request.validate_only))
        except KafkaError as error:
            response.topics.append(
                CreatableTopicResult(name=asked.name, error_code=error.code, error_message=message_of(error))
            )
    await tell_nodes(call, version)
    return response


async def _create(call: Call, asked: CreatableTopic, planned: list[int], validate_only: bool) -> CreatableTopicResult:
    if asked.name == _METADATA_LOG or is_internal(asked.name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {asked.name} is prohibited.")
    broker = call.broker
    check_new_name(call, asked.name)
    configs = _configs(asked)
    partitions, placing = await _placing(broker, asked)
    check_new_topic(call, asked.name, partitions, planned)
    await check_tiering(broker, {}, configs)
    if validate_only:
        planned.append(partitions)
        return _result(call, asked.name, partitions, placing, configs, None)
    topic = await call.create_topic(asked.name, partitions, configs, placing)
    await warn_of_copies(broker, topic.name, broker.policy(topic).replicas)
    return _result(call, asked.name, partitions, placing, configs, topic)


def _configs(asked: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in asked.configs if config.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return check_new_configs({config.name: config.value or "" for config in asked.configs})


async def _placing(broker: Broker, asked: CreatableTopic) -> tuple[int, Placing]:
    """How many partitions the topic gets, and where, from the numbers or the assignments of the request."""
    if asked.assignments:
        return await _assigned(broker, asked, asked.assignments)
    factor = await check_replication_factor(broker, asked.replication_factor)
    return broker.options.default_partitions if asked.num_partitions == DEFAULT else asked.num_partitions, Placing(
        factor
    )


async def _assigned(
    broker: Broker, asked: CreatableTopic, assignments: list[CreatableReplicaAssignment]
) -> tuple[int, Placing]:
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
    factor = await check_replicas(broker, [assignment.broker_ids for assignment in assignments])
    if sorted(numbers) != list(range(len(numbers))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return len(numbers), Placing(factor, {row.partition_index: row.broker_ids for row in assignments})


def _result(
    call: Call, name: str, partitions: int, placing: Placing, configs: dict[str, str], topic: Topic | None
) -> CreatableTopicResult:
    result = CreatableTopicResult(name=name, error_message=None)
    if topic is not None:
        result.topic_id = topic.uuid
    if not call.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions, result.replication_factor = partitions, placing.replication_factor
    result.configs = [
        CreatableTopicConfigs(
            name=config.name,
            value=config.value,
            read_only=config.is_read_only,
            config_source=config.source,
        )
        for config in describe_configs(configs, call.broker.configs.layers, topic.ulid if topic else "")
    ]
    return result
