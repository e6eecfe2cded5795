"""The events of a group. Requests carry a token by which the broker knows the response it owes.

Requests use Kafka's field names; fields that a version does not have keep their default.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from headrace.groups.classic.snapshot import StoredGroup
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.timers import TimerKey
from headrace.wire.errors import ErrorCode
from headrace.wire.topic_partition import TopicPartition


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    token: Hashable
    group_id: str
    version: int


class Join(Request, frozen=True, kw_only=True, gc=False):
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """Version 0 has none: the session timeout stands in for it."""
    protocol_type: str
    protocols: tuple[Protocol, ...]


class Sync(Request, frozen=True, kw_only=True, gc=False):
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """(member id, assignment), from the leader."""


class Heartbeat(Request, frozen=True, kw_only=True, gc=False):
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(msgspec.Struct, frozen=True):
    """An empty member id with an instance id removes a static member from outside."""

    member_id: str
    instance_id: str | None = None


class Leave(Request, frozen=True, kw_only=True):
    members: tuple[LeavingMember, ...]


class Commit(Request, frozen=True, kw_only=True):
    """OffsetCommit. Version 0 has neither member nor generation."""

    offsets: Mapping[Any, Any] = {}
    """Offsets to store, if this member may commit."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class TxnCommit(Commit, frozen=True, kw_only=True):
    """TxnOffsetCommit: offsets that count once their transaction is committed. Versions up to 2 name no member."""


class OffsetDelete(Request, frozen=True, kw_only=True):
    places: frozenset[TopicPartition]


class Delete(Request, frozen=True, kw_only=True):
    """DeleteGroups, for one of its groups."""


class TimersFired(msgspec.Struct, frozen=True):
    keys: tuple[TimerKey, ...]
    """Those that are due, earliest first."""


class RetentionCheck(msgspec.Struct, frozen=True):
    """A periodic check for expired offsets, or an expired group."""

    commits: Mapping[TopicPartition, int]
    """When each of its offsets was committed."""
    gone: frozenset[TopicPartition] = frozenset()
    """Those whose topics no longer exist."""


class TransactionEnded(msgspec.Struct, frozen=True):
    """Offsets that were pending in a transaction are applied or dropped: rows to store, None to remove."""

    rows: Mapping[Any, Any]


class Load(msgspec.Struct, frozen=True):
    """The broker started, or took the group over: this is what was stored."""

    stored: StoredGroup


class Resume(msgspec.Struct, frozen=True):
    """Requests could not be answered for a while: nobody must pay for heartbeats and joins that found no one."""


class Unload(msgspec.Struct, frozen=True):
    """The group is another node's now: whoever waits is told so."""

    error: ErrorCode = ErrorCode.NOT_COORDINATOR


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | Commit
    | TxnCommit
    | TransactionEnded
    | OffsetDelete
    | Delete
    | TimersFired
    | RetentionCheck
    | Load
    | Resume
    | Unload
)
