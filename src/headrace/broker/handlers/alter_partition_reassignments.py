"""AlterPartitionReassignments: nothing moves between nodes, because the store keeps the records.

A plan that names a partition's current nodes is accepted, as in Kafka; any other is rejected with the reason.
"""

from __future__ import annotations

from headrace.broker.administration import in_turn
from headrace.broker.call import Call
from headrace.broker.rights.asking import OnCluster
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

_NOTHING_MOVES = (
    "Partitions are not moved between brokers: their records are in the store, and any live broker can lead. "
    "The brokers of a partition can be chosen when its topic is created."
)


async def handle(call: Call, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    await call.look_again()
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    async for asked in in_turn(request.topics):
        rows = [_outcome(call, asked.name, partition) async for partition in in_turn(asked.partitions)]
        response.responses.append(ReassignableTopicResponse(asked.name, rows))
    return response


def _outcome(call: Call, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    number, wanted = asked.partition_index, asked.replicas
    topic = call.known_topic(OnCluster(Operation.ALTER), name)
    code, message = ErrorCode.NONE, None
    if topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    elif not 0 <= number < topic.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}."
    elif wanted is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    elif wanted != [node.id for node in call.broker.store.nodes.replicas(topic, number)]:
        code, message = ErrorCode.INVALID_REPLICA_ASSIGNMENT, _NOTHING_MOVES
    return ReassignablePartitionResponse(number, code, message)
