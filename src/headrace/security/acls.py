"""ACLs with Kafka's numbers: who may, or may not, do what to which resource.

A rule names a principal, a host, an operation and a resource pattern. Decisions are in `rules.py`, filters in
`acl_filter.py`.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv6Address, ip_address

import msgspec

WILDCARD = "*"
ANYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The one name that the cluster has as a resource."""


class ResourceType(IntEnum):
    """Types of resources in rules."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """Operations on resources."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule allows or forbids."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    """How a rule names resources; a literal `*` means all of a type."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Acl(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One rule."""

    resource_type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """In the words of `headrace acls list`."""
        shown = f"{self.name}*" if self.pattern is PatternType.PREFIXED else self.name
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on {self.resource_type.name} {shown} "
            f"from {'any host' if self.host == WILDCARD else self.host}"
        )


_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


def covers(rule: Acl, operation: Operation) -> bool:
    """Whether a rule speaks of an operation. What implies another does so only where it allows."""
    if rule.operation is Operation.ALL or rule.operation is operation:
        return True
    return rule.permission is Permission.ALLOW and rule.operation in _IMPLYING.get(operation, ())


def plain_host(host: str) -> str:
    """An address in the one form that rules and callers are compared in."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The `authorized operations` per resource type, as in Kafka's AclEntry."""
