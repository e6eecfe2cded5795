"""A group's answers as data, with the fields of Kafka's responses, and their forms for older versions."""

import msgspec

from headrace.groups.classic.events import (
    Commit,
    Delete,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetDelete,
    Request,
    Sync,
)
from headrace.wire.errors import ErrorCode

NULLABLE_PROTOCOL_NAME_FROM = 7
LEAVE_ROWS_FROM = 3


class JoinedMember(msgspec.Struct, frozen=True, gc=False):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatAnswer(msgspec.Struct, frozen=True, gc=False):
    error: ErrorCode


class LeaveRow(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveAnswer(msgspec.Struct, frozen=True):
    error: ErrorCode
    members: tuple[LeaveRow, ...] = ()


class CommitAnswer(msgspec.Struct, frozen=True):
    """NONE: the offsets may be stored. Anything else is the error of every partition."""

    error: ErrorCode


class OffsetDeleteAnswer(msgspec.Struct, frozen=True):
    error: ErrorCode
    subscribed: frozenset[str] = frozenset()
    """Topics to refuse with GROUP_SUBSCRIBED_TO_TOPIC; the offsets of the others may go."""


class DeleteAnswer(msgspec.Struct, frozen=True):
    error: ErrorCode


Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer | CommitAnswer | OffsetDeleteAnswer | DeleteAnswer


def join_answer_for(version: int, answer: JoinAnswer) -> JoinAnswer:
    """No protocol name is null, before version 7 empty: Kafka makes no difference between the two."""
    name = answer.protocol_name or (None if version >= NULLABLE_PROTOCOL_NAME_FROM else "")
    return answer if name == answer.protocol_name else msgspec.structs.replace(answer, protocol_name=name)


def leave_answer(version: int, rows: tuple[LeaveRow, ...]) -> LeaveAnswer:
    """Up to version 2 one member leaves, and its error is the answer's."""
    if version >= LEAVE_ROWS_FROM:
        return LeaveAnswer(ErrorCode.NONE, rows)
    return LeaveAnswer(rows[0].error if rows else ErrorCode.UNKNOWN_MEMBER_ID)


def leave_row(member: LeavingMember, error: ErrorCode) -> LeaveRow:
    return LeaveRow(member.member_id, member.instance_id, error)


def refusal(request: Request, error: ErrorCode) -> Answer:
    """The answer to a request that was not, or could not be, decided.

    For the checks that come before any state (not the coordinator, still loading, no access) and for a
    decision that could not be stored.
    """
    match request:
        case Join():
            return join_answer_for(request.version, JoinAnswer(error=error, member_id=request.member_id))
        case Sync():
            return SyncAnswer(error=error)
        case Heartbeat():
            return HeartbeatAnswer(error)
        case Leave():
            return LeaveAnswer(error)
        case Commit():
            return CommitAnswer(error)
        case OffsetDelete():
            return OffsetDeleteAnswer(error)
        case Delete():
            return DeleteAnswer(error)
        case _:
            raise TypeError(f"no answer for {type(request).__name__}")
