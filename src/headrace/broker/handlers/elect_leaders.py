"""ElectLeaders: leaders follow from the live nodes, so there is never one to elect."""

from __future__ import annotations

from headrace.broker.administration import in_turn
from headrace.broker.call import Call
from headrace.broker.rights.asking import OnCluster
from headrace.security.acls import Operation
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED, _UNCLEAN = 0, 1


async def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = ElectLeadersResponse()
    await call.look_again()
    # Asked for all partitions, Kafka names only those that got another leader: none.
    async for asked in in_turn(request.topic_partitions or []):
        rows = [_outcome(call, asked.topic, number) async for number in in_turn(asked.partitions)]
        response.replica_election_results.append(ReplicaElectionResult(asked.topic, rows))
    return response


def _outcome(call: Call, name: str, number: int) -> PartitionResult:
    topic = call.known_topic(OnCluster(Operation.ALTER), name)
    if topic is None:
        return PartitionResult(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= number < topic.partitions:
        return PartitionResult(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
    message = "Leader election not needed for topic partition."
    return PartitionResult(number, ErrorCode.ELECTION_NOT_NEEDED, message)
