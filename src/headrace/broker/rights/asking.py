"""How a handler names the operation of an access, and the resource whose ACLs count.

A topic is accessed with a right to it (`Operation.READ`) or, where Kafka does so, with a right to the cluster
(`OnCluster(Operation.DESCRIBE)`).
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.security.acls import Operation, ResourceType
from headrace.wire.errors import ErrorCode, KafkaError

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_MESSAGES = {
    ResourceType.TOPIC: "Topic authorization failed.",
    ResourceType.GROUP: "Group authorization failed.",
    ResourceType.CLUSTER: "Cluster authorization failed.",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
    ResourceType.DELEGATION_TOKEN: "Delegation Token authorization failed.",
}


class OnCluster(NamedTuple):
    """An operation that a right to the cluster is needed for."""

    operation: Operation


Ask = Operation | OnCluster


class NotAuthorized(KafkaError):
    """The caller may not do that."""

    def __init__(self, kind: ResourceType) -> None:
        super().__init__(REFUSALS[kind], _MESSAGES[kind])
