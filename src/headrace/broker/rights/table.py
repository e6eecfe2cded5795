"""The table of rights: what each API needs, on which resource, and the error without it.

docs/rights.md is generated from it, and a test tries each row with and without the right. Rights to the cluster are
checked by dispatch, so no handler has to; the rest by `Access` when a handler uses a resource. An API without a row is
not served.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.security.acls import Operation as Op
from headrace.security.acls import ResourceType as Of

FIRST, LAST = 0, 99
_ERRORS = {Of.TOPIC: 29, Of.GROUP: 30, Of.CLUSTER: 31, Of.TRANSACTIONAL_ID: 53}


class Row(NamedTuple):
    """One right that an API asks for."""

    api: int
    resource: Of
    operation: Op
    notes: str = ""
    by_dispatch: bool = False
    """Checked before the request is handled at all."""
    oldest: int = FIRST
    """The first version that needs it."""

    @property
    def error(self) -> int:
        return _ERRORS[self.resource]


def _whole(api: int, operation: Op, notes: str = "", oldest: int = FIRST) -> Row:
    return Row(api, Of.CLUSTER, operation, notes, True, oldest)


_ALL_TENANTS = "brokers; only in the organisation `default`"

ROWS: tuple[Row, ...] = (
    Row(0, Of.TOPIC, Op.WRITE),
    Row(0, Of.TRANSACTIONAL_ID, Op.WRITE, "with a transactional id; every partition gets the error"),
    Row(1, Of.TOPIC, Op.READ, "checked again before each pass of a waiting Fetch, and in each Fetch of a session"),
    Row(2, Of.TOPIC, Op.DESCRIBE),
    Row(3, Of.TOPIC, Op.DESCRIBE, "a list of all topics leaves out those without the right"),
    Row(3, Of.TOPIC, Op.CREATE, "to create it automatically; or CREATE on the cluster"),
    Row(8, Of.GROUP, Op.READ, "every partition gets the error"),
    Row(8, Of.TOPIC, Op.READ),
    Row(9, Of.GROUP, Op.DESCRIBE),
    Row(9, Of.TOPIC, Op.DESCRIBE, "a list of all topics leaves out those without the right"),
    Row(10, Of.GROUP, Op.DESCRIBE, "key type 0"),
    Row(10, Of.TRANSACTIONAL_ID, Op.DESCRIBE, "key type 1"),
    Row(11, Of.GROUP, Op.READ),
    Row(12, Of.GROUP, Op.READ),
    Row(13, Of.GROUP, Op.READ),
    Row(14, Of.GROUP, Op.READ),
    Row(15, Of.GROUP, Op.DESCRIBE),
    Row(16, Of.GROUP, Op.DESCRIBE, "no error: groups without the right are left out; or DESCRIBE on the cluster"),
    Row(
        19,
        Of.TOPIC,
        Op.CREATE,
        "or CREATE on the cluster; the response has configs only with DESCRIBE_CONFIGS on the topic",
    ),
    Row(
        20,
        Of.TOPIC,
        Op.DELETE,
        "or DELETE on the cluster; without DESCRIBE the response does not reveal whether it exists",
    ),
    Row(21, Of.TOPIC, Op.DELETE),
    Row(22, Of.TRANSACTIONAL_ID, Op.WRITE, "with a transactional id"),
    Row(22, Of.CLUSTER, Op.IDEMPOTENT_WRITE, "without a transactional id; or WRITE on any topic"),
    Row(23, Of.TOPIC, Op.DESCRIBE),
    Row(24, Of.TRANSACTIONAL_ID, Op.WRITE, "up to version 3; every partition gets the error"),
    Row(24, Of.TOPIC, Op.WRITE, "the other partitions get OPERATION_NOT_ATTEMPTED (55)"),
    Row(24, Of.CLUSTER, Op.CLUSTER_ACTION, "sent by brokers, not by clients", oldest=4),
    Row(25, Of.TRANSACTIONAL_ID, Op.WRITE),
    Row(25, Of.GROUP, Op.READ),
    Row(26, Of.TRANSACTIONAL_ID, Op.WRITE),
    Row(27, Of.CLUSTER, Op.CLUSTER_ACTION, "every partition gets the error"),
    Row(28, Of.TRANSACTIONAL_ID, Op.WRITE, "every partition gets the error"),
    Row(28, Of.GROUP, Op.READ, "every partition gets the error"),
    Row(28, Of.TOPIC, Op.READ),
    _whole(29, Op.DESCRIBE),
    _whole(30, Op.ALTER),
    _whole(31, Op.ALTER),
    Row(32, Of.TOPIC, Op.DESCRIBE_CONFIGS, "topics"),
    Row(32, Of.GROUP, Op.DESCRIBE_CONFIGS, "groups"),
    Row(32, Of.CLUSTER, Op.DESCRIBE_CONFIGS, _ALL_TENANTS),
    Row(33, Of.TOPIC, Op.ALTER_CONFIGS, "topics"),
    Row(33, Of.GROUP, Op.ALTER_CONFIGS, "groups"),
    Row(33, Of.CLUSTER, Op.ALTER_CONFIGS, _ALL_TENANTS),
    _whole(34, Op.ALTER),
    _whole(35, Op.DESCRIBE),
    Row(37, Of.TOPIC, Op.ALTER),
    Row(42, Of.GROUP, Op.DELETE),
    _whole(43, Op.ALTER),
    Row(44, Of.TOPIC, Op.ALTER_CONFIGS, "topics"),
    Row(44, Of.GROUP, Op.ALTER_CONFIGS, "groups"),
    Row(44, Of.CLUSTER, Op.ALTER_CONFIGS, _ALL_TENANTS),
    _whole(45, Op.ALTER),
    _whole(46, Op.DESCRIBE),
    Row(47, Of.GROUP, Op.DELETE),
    Row(47, Of.TOPIC, Op.READ),
    _whole(48, Op.DESCRIBE_CONFIGS),
    _whole(49, Op.ALTER_CONFIGS, "quotas of addresses: only in the organisation `default`"),
    _whole(50, Op.DESCRIBE),
    _whole(51, Op.ALTER),
    _whole(55, Op.DESCRIBE),
    Row(61, Of.TOPIC, Op.READ),
    _whole(64, Op.ALTER),
    Row(65, Of.TRANSACTIONAL_ID, Op.DESCRIBE),
    Row(66, Of.TRANSACTIONAL_ID, Op.DESCRIBE, "no error: ids without the right are left out"),
    Row(69, Of.GROUP, Op.DESCRIBE),
    _whole(74, Op.DESCRIBE_CONFIGS),
    Row(75, Of.TOPIC, Op.DESCRIBE, "a list of all topics leaves out those without the right"),
    Row(77, Of.GROUP, Op.DESCRIBE),
    _whole(80, Op.ALTER),
    _whole(81, Op.ALTER),
    Row(89, Of.GROUP, Op.DESCRIBE),
    Row(90, Of.GROUP, Op.DESCRIBE),
    _whole(30000, Op.DESCRIBE, "`headrace acls check`"),
    _whole(30001, Op.DESCRIBE, "`headrace orgs`; only in the organisation `default`"),
    _whole(30002, Op.ALTER, "`headrace orgs`; only in the organisation `default`"),
    _whole(30003, Op.ALTER, "`headrace orgs`; only in the organisation `default`"),
)

ASKS_NOTHING = {
    17: "logging in",
    18: "the broker's API versions",
    36: "logging in",
    60: "everyone may see the brokers; the authorized operations need DESCRIBE on the cluster",
}
"""APIs that everyone may use."""

_BY_DISPATCH = {row.api: row for row in ROWS if row.by_dispatch}


def cluster_right(api_key: int, version: int) -> Op | None:
    """The cluster right that is checked before a request is handled."""
    row = _BY_DISPATCH.get(api_key)
    return row.operation if row is not None and version >= row.oldest else None
