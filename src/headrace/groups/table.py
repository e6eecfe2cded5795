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

from headrace.groups.errors import ErrorCode


class State(StrEnum):
    """Kafka's own names: DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Trigger(StrEnum):
    """What moves a group; the value is the label in the diagram."""

    FIRST_JOIN = "a member joins"
    MEMBERSHIP_CHANGED = "a member joins, changes, leaves or fails"
    ALL_JOINED = "all members joined, or the rebalance time-out ended"
    LAST_MEMBER_GONE = "no member is left"
    ASSIGNED = "the leader's assignment is stored"
    DELETED = "deleted, or its retention ended"
    UNLOADED = "another node owns it now"


TRANSITIONS: Mapping[State, Mapping[Trigger, State]] = {
    State.EMPTY: {
        Trigger.FIRST_JOIN: State.PREPARING_REBALANCE,
        Trigger.DELETED: State.DEAD,
        Trigger.UNLOADED: State.DEAD,
    },
    State.PREPARING_REBALANCE: {
        Trigger.ALL_JOINED: State.COMPLETING_REBALANCE,
        Trigger.LAST_MEMBER_GONE: State.EMPTY,
        Trigger.UNLOADED: State.DEAD,
    },
    State.COMPLETING_REBALANCE: {
        Trigger.ASSIGNED: State.STABLE,
        Trigger.MEMBERSHIP_CHANGED: State.PREPARING_REBALANCE,
        Trigger.UNLOADED: State.DEAD,
    },
    State.STABLE: {
        Trigger.MEMBERSHIP_CHANGED: State.PREPARING_REBALANCE,
        Trigger.UNLOADED: State.DEAD,
    },
    State.DEAD: {},
}


class IllegalTransition(Exception):
    """A bug in this room: the table has no such move."""


def next_state(state: State, trigger: Trigger) -> State:
    target = TRANSITIONS[state].get(trigger)
    if target is None:
        raise IllegalTransition(f"{state.value}: no move for '{trigger.value}'")
    return target


class Api(StrEnum):
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

FIXED_ANSWERS: Mapping[Api, Mapping[State | None, ErrorCode]] = {
    Api.SYNC: {
        _NO_GROUP: _UNKNOWN,
        State.EMPTY: _UNKNOWN,
        State.PREPARING_REBALANCE: _REBALANCING,
        State.DEAD: _UNAVAILABLE,
    },
    Api.HEARTBEAT: {
        _NO_GROUP: _UNKNOWN,
        State.EMPTY: _UNKNOWN,
        State.PREPARING_REBALANCE: _REBALANCING,
        State.COMPLETING_REBALANCE: ErrorCode.NONE,
        State.STABLE: ErrorCode.NONE,
        State.DEAD: _UNAVAILABLE,
    },
    Api.LEAVE: {
        _NO_GROUP: _UNKNOWN,
        State.DEAD: _UNAVAILABLE,
    },
    Api.COMMIT: {
        State.COMPLETING_REBALANCE: _REBALANCING,
        State.DEAD: _UNAVAILABLE,
    },
    Api.OFFSET_DELETE: {
        _NO_GROUP: _NOT_FOUND,
        State.EMPTY: ErrorCode.NONE,
        State.DEAD: _NOT_FOUND,
    },
    Api.DELETE: {
        _NO_GROUP: _NOT_FOUND,
        State.EMPTY: ErrorCode.NONE,
        State.PREPARING_REBALANCE: _NON_EMPTY,
        State.COMPLETING_REBALANCE: _NON_EMPTY,
        State.STABLE: _NON_EMPTY,
        State.DEAD: _NOT_FOUND,
    },
}


def diagram() -> str:
    """The state diagram as Mermaid text, drawn from `TRANSITIONS`."""
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in _diagram_lines())]) + "\n"


def _diagram_lines() -> Iterator[str]:
    yield f"[*] --> {State.EMPTY.value}"
    for state, moves in TRANSITIONS.items():
        for trigger, target in moves.items():
            yield f"{state.value} --> {target.value}: {trigger.value}"
    yield f"{State.DEAD.value} --> [*]"
