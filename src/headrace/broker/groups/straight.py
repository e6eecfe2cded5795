"""The straight road of group requests: the answer is packed where the group decides it, without a task.

When a rebalance completes, all members are answered at once: a group of 200 has 200 answers in one turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.handlers import heartbeat, join_group, sync_group
from headrace.security.acls import Operation, ResourceType
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.join_group import JoinGroupRequest
from headrace.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.broker.dispatch import Dispatch
    from headrace.wire.codec import Pieces

MemberRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest

_HANDLERS: dict[type[MemberRequest], Any] = {
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
}


def begin(call: Call, request: MemberRequest, dispatch: Dispatch) -> bool:
    """Asks the group; False, without effect, if the request has to be refused or its time is metered."""
    group_id = request.group_id
    if not group_id or call.broker.quotas.is_any or not call.may(Operation.READ, ResourceType.GROUP, group_id):
        return False
    handler = _HANDLERS[type(request)]
    owed = _OwedAnswer(call, dispatch, handler)
    call.slot.on_cancel = owed.cancel
    call.ask_group(Operation.READ, handler.event_of(call, request, owed), object)
    return True


class _OwedAnswer:
    """A reply token: told the answer like a future, and sends it."""

    __slots__ = ("_call", "_dispatch", "_handler", "_is_done")

    def __init__(self, call: Call, dispatch: Dispatch, handler: Any) -> None:
        self._call = call
        self._dispatch = dispatch
        self._handler = handler
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, answer: Any) -> None:
        pieces: Pieces | None = None
        try:
            pieces = self._dispatch.packed(self._call, self._handler.response_of(answer))
        except Exception:
            self._call.connection.failed(self._call.slot)
        self._end(pieces)

    def set_exception(self, error: BaseException) -> None:
        """A bug; the connection is closed, as with any other request that failed."""
        self._call.connection.failed(self._call.slot, error)
        self._end(None)

    def cancel(self) -> None:
        """The client has gone."""
        if not self._is_done:
            self._end(None)

    def _end(self, pieces: Pieces | None) -> None:
        self._is_done = True
        self._call.slot.on_cancel = None
        self._call.connection.answered(self._call.slot, pieces)
