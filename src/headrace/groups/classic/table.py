"""The states of a consumer group, what moves it between them, and the answers that a state alone decides.

A group is a small machine with five states. It is Empty until somebody joins. A join, or a member that
leaves or fails, makes it PreparingRebalance: everybody has to join again. Once they have, a new generation
begins and the group is CompletingRebalance: the leader works out who reads what, the others wait. The
leader's assignment makes it Stable. Dead is for a group that was deleted or moved to another node while
somebody still held on to it.

`TRANSITIONS` is the whole truth about moves: a move that is not in it raises and changes nothing, and the
diagram in docs/groups-states.md is drawn from it. `FIXED_ANSWERS` holds the cells of the request table
that need no look at the request; the others are decided by the handler named after the request.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from headrace.wire.errors import ErrorCode


class ClassicState(StrEnum):
    """Kafka's own names: DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Trigger(StrEnum):
    """Triggers of a group's transitions; the value is the label in the diagram."""

    FIRST_JOIN = "a member joins"
    MEMBERSHIP_CHANGED = "a member joins, changes, leaves or fails"
    ALL_JOINED = "all members joined, or the rebalance timed out"
    LAST_MEMBER_GONE = "no members left"
    ASSIGNED = "the leader's assignment is stored"
    DELETED = "deleted, or its retention expired"
    UNLOADED = "another node owns it now"


TRANSITIONS: Mapping[ClassicState, Mapping[Trigger, ClassicState]] = {
    ClassicState.EMPTY: {
        Trigger.FIRST_JOIN: ClassicState.PREPARING_REBALANCE,
        Trigger.DELETED: ClassicState.DEAD,
        Trigger.UNLOADED: ClassicState.DEAD,
    },
    ClassicState.PREPARING_REBALANCE: {
        Trigger.ALL_JOINED: ClassicState.COMPLETING_REBALANCE,
        Trigger.LAST_MEMBER_GONE: ClassicState.EMPTY,
        Trigger.UNLOADED: ClassicState.DEAD,
    },
    ClassicState.COMPLETING_REBALANCE: {
        Trigger.ASSIGNED: ClassicState.STABLE,
        Trigger.MEMBERSHIP_CHANGED: ClassicState.PREPARING_REBALANCE,
        Trigger.UNLOADED: ClassicState.DEAD,
    },
    ClassicState.STABLE: {
        Trigger.MEMBERSHIP_CHANGED: ClassicState.PREPARING_REBALANCE,
        Trigger.UNLOADED: ClassicState.DEAD,
    },
    ClassicState.DEAD: {},
}


class IllegalTransition(Exception):
    """A bug in this room: the table has no such move."""


def next_state(state: ClassicState, trigger: Trigger) -> ClassicState:
    target = TRANSITIONS[state].get(trigger)
    if target is None:
        raise IllegalTransition(f"{state.value}: no move for '{trigger.value}'")
    return target


class GroupApi(StrEnum):
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    OFFSET_DELETE = "OffsetDelete"
    DELETE = "DeleteGroups"


_NO_GROUP = None
_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
_NON_EMPTY = ErrorCode.NON_EMPTY_GROUP

FIXED_ANSWERS: Mapping[GroupApi, Mapping[ClassicState | None, ErrorCode]] = {
    GroupApi.SYNC: {
        _NO_GROUP: _UNKNOWN,
        ClassicState.EMPTY: _UNKNOWN,
        ClassicState.PREPARING_REBALANCE: _REBALANCING,
        ClassicState.DEAD: _UNAVAILABLE,
    },
    GroupApi.HEARTBEAT: {
        _NO_GROUP: _UNKNOWN,
        ClassicState.EMPTY: _UNKNOWN,
        ClassicState.PREPARING_REBALANCE: _REBALANCING,
        ClassicState.COMPLETING_REBALANCE: ErrorCode.NONE,
        ClassicState.STABLE: ErrorCode.NONE,
        ClassicState.DEAD: _UNAVAILABLE,
    },
    GroupApi.LEAVE: {
        _NO_GROUP: _UNKNOWN,
        ClassicState.DEAD: _UNAVAILABLE,
    },
    GroupApi.COMMIT: {
        ClassicState.COMPLETING_REBALANCE: _REBALANCING,
        ClassicState.DEAD: _UNAVAILABLE,
    },
    GroupApi.OFFSET_DELETE: {
        _NO_GROUP: _NOT_FOUND,
        ClassicState.EMPTY: ErrorCode.NONE,
        ClassicState.DEAD: _NOT_FOUND,
    },
    GroupApi.DELETE: {
        _NO_GROUP: _NOT_FOUND,
        ClassicState.EMPTY: ErrorCode.NONE,
        ClassicState.PREPARING_REBALANCE: _NON_EMPTY,
        ClassicState.COMPLETING_REBALANCE: _NON_EMPTY,
        ClassicState.STABLE: _NON_EMPTY,
        ClassicState.DEAD: _NOT_FOUND,
    },
}


def diagram() -> str:
    """The state diagram as Mermaid text, drawn from `TRANSITIONS`."""
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in _diagram_lines())]) + "\n"


def _diagram_lines() -> Iterator[str]:
    yield f"[*] --> {ClassicState.EMPTY.value}"
    for state, moves in TRANSITIONS.items():
        for trigger, target in moves.items():
            yield f"{state.value} --> {target.value}: {trigger.value}"
    yield f"{ClassicState.DEAD.value} --> [*]"
