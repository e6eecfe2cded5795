"""What can happen to a group. Requests carry a token: the broker's name for the answer that it owes.

Requests name Kafka's fields; what a version does not have is left at its default.
"""

from collections.abc import Hashable

import msgspec

from headrace.groups.errors import ErrorCode
from headrace.groups.snapshot import StoredGroup
from headrace.groups.state import Protocol
from headrace.groups.timers import TimerKey


class Request(msgspec.Struct, frozen=True, kw_only=True):
    token: Hashable
    group_id: str
    version: int


class Join(Request, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """Version 0 has none: the session time-out stands in for it."""
    protocol_type: str
    protocols: tuple[Protocol, ...]


class Sync(Request, frozen=True, kw_only=True):
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """(member id, assignment), from the leader."""


class Heartbeat(Request, frozen=True, kw_only=True):
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(msgspec.Struct, frozen=True):
    """An empty member id with an instance id removes a static member from outside."""

    member_id: str
    instance_id: str | None = None


class Leave(Request, frozen=True, kw_only=True):
    members: tuple[LeavingMember, ...]


class CommitCheck(Request, frozen=True, kw_only=True):
    """May this OffsetCommit be stored? Version 0 has neither member nor generation."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class OffsetDeleteCheck(Request, frozen=True, kw_only=True):
    topics: frozenset[str]


class Delete(Request, frozen=True, kw_only=True):
    """DeleteGroups, for one of its groups."""


class TimerFired(msgspec.Struct, frozen=True):
    key: TimerKey


class RetentionCheck(msgspec.Struct, frozen=True):
    """Is the group due to be forgotten? Asked now and then, with the time of its last commit if it has one."""

    last_commit_ms: int | None


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
    | CommitCheck
    | OffsetDeleteCheck
    | Delete
    | TimerFired
    | RetentionCheck
    | Load
    | Resume
    | Unload
)
