"""Users, ACLs and quotas, or the reason why they cannot be shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from headrace.client import Cluster, UnsupportedApi
from headrace.client.connection import check
from headrace.client.users import UserAdmin
from headrace.console.endpoints import ApiQuestion
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

T = TypeVar("T")
_ANY = 1
_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
_PATTERNS = {3: "literal", 4: "prefixed"}
_OPERATIONS = {
    2: "All", 3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe", 9: "ClusterAction",
    10: "DescribeConfigs", 11: "AlterConfigs", 12: "IdempotentWrite", 13: "CreateTokens", 14: "DescribeTokens",
    15: "TwoPhaseCommit",
}  # fmt: skip
_PERMISSIONS = {2: "deny", 3: "allow"}
_ROWS_MAX = 2_000


class UserShown(msgspec.Struct, frozen=True):
    name: str
    mechanisms: dict[str, int]
    """Iterations by mechanism."""


class AclShown(msgspec.Struct, frozen=True):
    principal: str
    host: str
    operation: str
    permission: str
    resource: str
    name: str
    pattern: str


class QuotaShown(msgspec.Struct, frozen=True):
    entity: dict[str, str | None]
    """Names by type; null is the default."""
    values: dict[str, float]


class SecurityShown(msgspec.Struct, frozen=True):
    """Null, with a reason, if something cannot be shown."""

    users: list[UserShown] | None
    users_trouble: str
    acls: list[AclShown] | None
    acls_trouble: str
    quotas: list[QuotaShown] | None
    quotas_trouble: str


def show_security(cluster: Cluster, question: ApiQuestion) -> SecurityShown:
    users, users_trouble = _tried(lambda: _users(cluster))
    acls, acls_trouble = _tried(lambda: _acls(cluster))
    quotas, quotas_trouble = _tried(lambda: _quotas(cluster))
    return SecurityShown(users, users_trouble, acls, acls_trouble, quotas, quotas_trouble)


def _tried(read: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return read(), ""
    except UnsupportedApi:
        return None, "This cluster does not support it."
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return None, "There is no authorizer: everyone may do everything."
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None, "You are not allowed to see this."
        return None, error.message or error.code.name


def _users(cluster: Cluster) -> list[UserShown]:
    return [UserShown(user.name, user.mechanisms) for user in UserAdmin(cluster).list_users()][:_ROWS_MAX]


def _acls(cluster: Cluster) -> list[AclShown]:
    request = DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY)

    def attempt() -> DescribeAclsResponse:
        answer = cluster.controller().send_for(request, DescribeAclsResponse)
        check(answer.error_code, answer.error_message)
        return answer

    found = [
        AclShown(
            acl.principal,
            acl.host,
            _OPERATIONS.get(acl.operation, str(acl.operation)),
            _PERMISSIONS.get(acl.permission_type, str(acl.permission_type)),
            _RESOURCES.get(resource.resource_type, str(resource.resource_type)),
            resource.resource_name,
            _PATTERNS.get(resource.pattern_type, str(resource.pattern_type)),
        )
        for resource in cluster.retrying(attempt).resources
        for acl in resource.acls
    ]
    return sorted(found, key=lambda acl: (acl.principal, acl.resource, acl.name, acl.operation))[:_ROWS_MAX]


def _quotas(cluster: Cluster) -> list[QuotaShown]:
    def attempt() -> DescribeClientQuotasResponse:
        answer = cluster.controller().send_for(DescribeClientQuotasRequest([], False), DescribeClientQuotasResponse)
        check(answer.error_code, answer.error_message)
        return answer

    return [
        QuotaShown(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in (cluster.retrying(attempt).entries or [])[:_ROWS_MAX]
    ]
