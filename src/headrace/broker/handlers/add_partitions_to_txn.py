"""AddPartitionsToTxn: adds partitions to the open transaction, or begins one with them. All of them or none.

From version 4 on, brokers of Apache Kafka use it among themselves, for several ids at once, to verify produced batches.
"""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.broker.rights.asking import Ask, NotAuthorized, OnCluster
from headrace.broker.transactions.versions import end_error
from headrace.security.acls import Operation, ResourceType
from headrace.store.cluster.owned.transactions import Parts, TxnPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_MANY_SINCE = 4


async def handle(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if call.version >= _MANY_SINCE:
        call.check_cluster(Operation.CLUSTER_ACTION)
        results = [
            AddPartitionsToTxnResult(asked.transactional_id, await _add(call, asked)) for asked in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    topics = request.v3_and_below_topics
    try:
        call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    except NotAuthorized as error:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, {}, error.code))
    asked = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _add(call, asked))


async def _add(call: Call, asked: AddPartitionsToTxnTransaction) -> list[AddPartitionsToTxnTopicResult]:
    if not asked.transactional_id:
        return _results(asked.topics, {}, ErrorCode.INVALID_REQUEST)
    places: list[TxnPartition] = []
    refused: dict[tuple[str, int], ErrorCode] = {}
    for topic in asked.topics:
        for number in topic.partitions:
            try:
                places.append(await _place(call, topic.name, number))
            except KafkaError as error:
                refused[topic.name, number] = error.code
    if refused:
        return _results(asked.topics, refused, ErrorCode.OPERATION_NOT_ATTEMPTED)
    producer = asked.producer_id, asked.producer_epoch
    parts = Parts(places)
    outcome = await call.add_to_transaction(asked.transactional_id, producer, parts, only_check=asked.verify_only)
    return _results(asked.topics, {}, end_error(outcome, call.version))


async def _place(call: Call, name: str, number: int) -> TxnPartition:
    ask: Ask = OnCluster(Operation.CLUSTER_ACTION) if call.version >= _MANY_SINCE else Operation.WRITE
    topic = await call.topic(ask, name)
    if not 0 <= number < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_stream:
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    return TxnPartition(topic.id, number)


def _results(
    topics: list[AddPartitionsToTxnTopic], refused: dict[tuple[str, int], ErrorCode], others: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(number, refused.get((topic.name, number), others))
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]
