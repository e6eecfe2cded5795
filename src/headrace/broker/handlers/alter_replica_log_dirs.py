"""AlterReplicaLogDirs: the one log directory is the store, and every partition is in it already."""

from __future__ import annotations

from headrace.broker.administration import in_turn
from headrace.broker.call import Call
from headrace.broker.rights.asking import OnCluster
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    broker = call.broker
    await call.look_again()
    response = AlterReplicaLogDirsResponse()
    for target in request.dirs:
        is_here = target.path == broker.store.address
        async for topic in in_turn(target.topics):
            rows = [
                AlterReplicaLogDirPartitionResult(number, _outcome(call, is_here, topic.name, number))
                async for number in in_turn(topic.partitions)
            ]
            response.results.append(AlterReplicaLogDirTopicResult(topic.name, rows))
    return response


def _outcome(call: Call, is_here: bool, name: str, number: int) -> ErrorCode:
    if not is_here:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = call.known_topic(OnCluster(Operation.ALTER), name)
    exists = topic is not None and 0 <= number < topic.partitions
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
