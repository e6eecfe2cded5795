"""ACL rules and filters in requests: parsed, or refused as Kafka does."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from headrace.security.acl_filter import AclFilter
from headrace.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.create_acls import AclCreation

E = TypeVar("E", bound=IntEnum)
_LONGEST = 1_000


class FilterRequest(Protocol):
    """The filter fields of DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def read_filter(asked: FilterRequest) -> AclFilter:
    return AclFilter(
        _known(ResourceType, asked.resource_type_filter, "resourceType"),
        asked.resource_name_filter,
        _known(PatternType, asked.pattern_type_filter, "patternType"),
        asked.principal_filter,
        asked.host_filter,
        _known(Operation, asked.operation, "operation"),
        _known(Permission, asked.permission_type, "permissionType"),
    )


def read_rule(asked: AclCreation) -> Acl:
    """A rule that may be stored; INVALID_REQUEST says why it may not."""
    rule = Acl(
        _concrete(ResourceType, asked.resource_type, "resourceType", ResourceType.ANY),
        asked.resource_name,
        _concrete(PatternType, asked.resource_pattern_type, "patternType", PatternType.ANY, PatternType.MATCH),
        asked.principal,
        asked.host,
        _concrete(Operation, asked.operation, "operation", Operation.ANY),
        _concrete(Permission, asked.permission_type, "permissionType", Permission.ANY),
    )
    if rule.resource_type is ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not rule.name:
        raise _invalid("Invalid empty resource name")
    kind, colon, name = rule.principal.partition(":")
    if not (kind and colon and name):
        raise _invalid(
            f"Could not parse principal from `{rule.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    if not rule.host:
        raise _invalid("The host must not be empty: an address, or * for any")
    if max(len(rule.name), len(rule.principal), len(rule.host)) > _LONGEST:
        raise _invalid(f"A name, principal or host may have at most {_LONGEST} characters")
    return rule


def _known(kind: type[E], code: int, what: str) -> E:
    try:
        found = kind(code)
    except ValueError:
        found = None
    if not found:  # UNKNOWN is 0
        raise _invalid(f"Invalid {what} UNKNOWN")
    return found


def _concrete(kind: type[E], code: int, what: str, *not_these: E) -> E:
    found = _known(kind, code, what)
    if found in not_these:
        raise _invalid(f"Invalid {what} {found.name}")
    return found


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
