"""Questions about rules, with the answers of Kafka's documentation ("Authorization and ACLs", KIP-290, KIP-679).

Each grid is written down by hand: a row per rule, a column per question, `y` where it is allowed. Nothing here is
computed from the code that is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from headrace.security.rules import AccessQuestion

ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


class Case(NamedTuple):
    """Rules, a question, and the answer."""

    rules: tuple[Acl, ...]
    question: AccessQuestion
    answer: bool
    super_users: frozenset[str] = frozenset()
    allow_if_no_rule: bool = False


def allow(operation: Operation = Operation.READ, **what: Any) -> Acl:
    return rule(Permission.ALLOW, operation, **what)


def deny(operation: Operation = Operation.READ, **what: Any) -> Acl:
    return rule(Permission.DENY, operation, **what)


def rule(permission: Permission, operation: Operation, **what: Any) -> Acl:
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "name": "orders",
        "pattern": LITERAL,
        "principal": ALICE,
        "host": "*",
        **what,
    }
    return Acl(operation=operation, permission=permission, **fields)


def ask(
    operation: Operation = Operation.READ,
    name: str = "orders",
    principal: str = ALICE,
    host: str = HERE,
    kind: ResourceType = ResourceType.TOPIC,
) -> AccessQuestion:
    return AccessQuestion(principal, host, operation, kind, name)


OPERATIONS = list(Operation)[3:]
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, and so on: in the order of their numbers."""

ALLOWED_BY = """
ALL              yyyyyyyyyyyyy
READ             y....y.......
WRITE            .y...y.......
CREATE           ..y..........
DELETE           ...y.y.......
ALTER            ....yy.......
DESCRIBE         .....y.......
CLUSTER_ACTION   ......y......
DESCRIBE_CONFIGS .......y.....
ALTER_CONFIGS    .......yy....
IDEMPOTENT_WRITE .........y...
CREATE_TOKENS    ..........y..
DESCRIBE_TOKENS  ...........y.
TWO_PHASE_COMMIT ............y
"""
"""An ALLOW of the operation on the left lets one do these, in the order of OPERATIONS."""

LEFT_BY_DENY = """
ALL              .............
READ             .yyyyyyyyyyyy
WRITE            y.yyyyyyyyyyy
CREATE           yy.yyyyyyyyyy
DELETE           yyy.yyyyyyyyy
ALTER            yyyy.yyyyyyyy
DESCRIBE         yyyyy.yyyyyyy
CLUSTER_ACTION   yyyyyy.yyyyyy
DESCRIBE_CONFIGS yyyyyyy.yyyyy
ALTER_CONFIGS    yyyyyyyy.yyyy
IDEMPOTENT_WRITE yyyyyyyyy.yyy
CREATE_TOKENS    yyyyyyyyyy.yy
DESCRIBE_TOKENS  yyyyyyyyyyy.y
TWO_PHASE_COMMIT yyyyyyyyyyyy.
"""
"""What is left of ALLOW ALL beside a DENY of the operation on the left: nothing is implied by a DENY."""

NAMES = ["orders", "orders-eu", "orders.eu", "order", "Orders", "o", "payments", "*", "ordersx", "xorders"]
PATTERNS = """
LITERAL  orders     y.........
LITERAL  orders-eu  .y........
LITERAL  *          yyyyyyyyyy
LITERAL  order      ...y......
LITERAL  o          .....y....
LITERAL  Orders     ....y.....
LITERAL  xorders    .........y
LITERAL  nothing    ..........
PREFIXED orders     yyy.....y.
PREFIXED orders-    .y........
PREFIXED order      yyyy....y.
PREFIXED o          yyyy.y..y.
PREFIXED O          ....y.....
PREFIXED pay        ......y...
PREFIXED payments   ......y...
PREFIXED payments-  ..........
PREFIXED *          .......y..
PREFIXED x          .........y
"""

PRINCIPALS = ["User:alice", "User:bob", "User:Alice", "User:alicex", "Group:alice", "User:ANONYMOUS", "User:CN=a,O=b"]
PRINCIPAL_RULES = """
User:alice      y......
User:bob        .y.....
User:*          yyyyyyy
User:ANONYMOUS  .....y.
User:CN=a,O=b   ......y
Group:alice     ....y..
Group:*         .......
User:ali        .......
User:           .......
"""

HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.0.10", "::1", "2001:db8::1", "127.0.0.1"]
HOST_RULES = """
*                 yyyyyy
10.0.0.1          y.....
10.0.0.2          .y....
10.0.0.10         ..y...
::1               ...y..
0:0:0:0:0:0:0:1   ...y..
2001:db8::1       ....y.
2001:DB8:0::1     ....y.
127.0.0.1         .....y
10.0.0            ......
10.0.0.*          ......
example.com       ......
"""

TYPES = list(ResourceType)[2:]
"""TOPIC, GROUP, CLUSTER, and so on: in the order of their numbers."""
TYPE_RULES = """
TOPIC            y.....
GROUP            .y....
CLUSTER          ..y...
TRANSACTIONAL_ID ...y..
DELEGATION_TOKEN ....y.
USER             .....y
"""


def _grid(text: str) -> Iterator[tuple[list[str], str]]:
    for line in text.strip().splitlines():
        *head, marks = line.split()
        yield head, marks


def _operations() -> Iterator[Case]:
    everything = allow(Operation.ALL)
    for [name], marks in _grid(ALLOWED_BY):
        for operation, mark in zip(OPERATIONS, marks, strict=True):
            yield Case((allow(Operation[name]),), ask(operation), mark == "y")
            yield Case((allow(Operation[name], principal=BOB),), ask(operation), False)
    for [name], marks in _grid(LEFT_BY_DENY):
        for operation, mark in zip(OPERATIONS, marks, strict=True):
            yield Case((everything, deny(Operation[name])), ask(operation), mark == "y")
            yield Case((deny(Operation[name]),), ask(operation), False)


def _patterns() -> Iterator[Case]:
    everything = allow(Operation.ALL, name="*")
    for [pattern, name], marks in _grid(PATTERNS):
        for asked, mark in zip(NAMES, marks, strict=True):
            where: dict[str, Any] = {"name": name, "pattern": PatternType[pattern]}
            yield Case((allow(**where),), ask(name=asked), mark == "y")
            yield Case((everything, deny(**where)), ask(name=asked), mark != "y")


def _people_and_places() -> Iterator[Case]:
    for [principal], marks in _grid(PRINCIPAL_RULES):
        for asked, mark in zip(PRINCIPALS, marks, strict=True):
            yield Case((allow(principal=principal),), ask(principal=asked), mark == "y")
            yield Case((allow(principal="User:*"), deny(principal=principal)), ask(principal=asked), mark != "y")
    for [host], marks in _grid(HOST_RULES):
        for asked, mark in zip(HOSTS, marks, strict=True):
            yield Case((allow(host=host),), ask(host=asked), mark == "y")
            yield Case((allow(), deny(host=host)), ask(host=asked), mark != "y")
    for [kind], marks in _grid(TYPE_RULES):
        for asked_kind, mark in zip(TYPES, marks, strict=True):
            yield Case((allow(resource_type=ResourceType[kind]),), ask(kind=asked_kind), mark == "y")
            yield Case((allow(resource_type=ResourceType[kind], name="*"),), ask(kind=asked_kind), mark == "y")


def _defaults_and_super_users() -> Iterator[Case]:
    root = frozenset({"User:root"})
    for operation in OPERATIONS:
        yield Case((), ask(operation), False)
        yield Case((), ask(operation), True, allow_if_no_rule=True)
        yield Case((allow(operation, principal=BOB),), ask(operation), False, allow_if_no_rule=True)
        yield Case((allow(operation, name="other"),), ask(operation), True, allow_if_no_rule=True)
        yield Case(
            (allow(operation, name="ord", pattern=PREFIXED, principal=BOB),),
            ask(operation),
            False,
            allow_if_no_rule=True,
        )
        yield Case((allow(operation, name="*", principal=BOB),), ask(operation), False, allow_if_no_rule=True)
        yield Case((deny(operation, principal="User:*"),), ask(operation, principal="User:root"), True, root)
        yield Case(
            (deny(Operation.ALL, name="*", principal="User:root"),), ask(operation, principal="User:root"), True, root
        )
        yield Case((), ask(operation, principal="User:root2"), False, root)
        yield Case((deny(operation, host=THERE), allow(operation)), ask(operation, host=HERE), True)
        yield Case((deny(operation, host=THERE), allow(operation)), ask(operation, host=THERE), False)
        yield Case((allow(operation, host=THERE), allow(operation, host=HERE)), ask(operation, host=HERE), True)


def cases() -> list[Case]:
    return [*_operations(), *_patterns(), *_people_and_places(), *_defaults_and_super_users()]
