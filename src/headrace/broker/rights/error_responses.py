"""The response to a request that is refused as a whole, like Kafka's `getErrorResponse`.

Most responses have a top-level error; where they have none, each row carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.wire.apis import response_class
from headrace.wire.errors import KafkaError
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResult,
    EntryDataResult,
)
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from headrace.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from headrace.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.wire.schema import Payload


def error_response(request: Payload, error: KafkaError) -> Payload:
    """All of a request refused."""
    make = _BY_ROW.get(request.api.key)
    if make is not None:
        return make(request, error)
    response: Any = response_class(request.api.key)()
    if not hasattr(response, "error_code"):
        raise error  # a handler has to place it in its rows
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    refused: Payload = response
    return refused


def _create_acls(request: CreateAclsRequest, error: KafkaError) -> Payload:
    return CreateAclsResponse(results=[AclCreationResult(error.code, error.message) for _ in request.creations])


def _delete_acls(request: DeleteAclsRequest, error: KafkaError) -> Payload:
    rows = [DeleteAclsFilterResult(error.code, error.message) for _ in request.filters]
    return DeleteAclsResponse(filter_results=rows)


def _alter_log_dirs(request: AlterReplicaLogDirsRequest, error: KafkaError) -> Payload:
    rows = [
        AlterReplicaLogDirTopicResult(
            topic.name, [AlterReplicaLogDirPartitionResult(number, error.code) for number in topic.partitions]
        )
        for target in request.dirs
        for topic in target.topics
    ]
    return AlterReplicaLogDirsResponse(results=rows)


def _elect_leaders(request: ElectLeadersRequest, error: KafkaError) -> Payload:
    rows = [
        ReplicaElectionResult(
            asked.topic, [PartitionResult(number, error.code, error.message) for number in asked.partitions]
        )
        for asked in request.topic_partitions or []
    ]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=rows)


def _alter_quotas(request: AlterClientQuotasRequest, error: KafkaError) -> Payload:
    rows = [
        EntryDataResult(
            error.code, error.message, [EntityDataResult(one.entity_type, one.entity_name) for one in entry.entity]
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=rows)


def _alter_users(request: AlterUserScramCredentialsRequest, error: KafkaError) -> Payload:
    names = {row.name for row in request.deletions} | {row.name for row in request.upsertions}
    rows = [AlterUserScramCredentialsResult(name, error.code, error.message) for name in sorted(names)]
    return AlterUserScramCredentialsResponse(results=rows)


_BY_ROW: dict[int, Callable[[Any, KafkaError], Payload]] = {
    30: _create_acls,
    31: _delete_acls,
    34: _alter_log_dirs,
    43: _elect_leaders,
    49: _alter_quotas,
    51: _alter_users,
}
