"""The straight road of group requests: the answer is packed where the group decides it, without a task.

When a rebalance completes, all members are answered at once: a group of 200 has 200 answers to pack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headrace.broker.handlers import heartbeat, join_group, sync_group
from headrace.security.acls import Operation
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.join_group import JoinGroupRequest
from headrace.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.broker.dispatch import Dispatch

MemberRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest

_HANDLERS: dict[type[MemberRequest], Any] = {
    JoinGroupRequest: join_group,
    SyncGroupRequest: sync_group,
    HeartbeatRequest: heartbeat,
}


def begin(call: Call, request: MemberRequest, dispatch: Dispatch) -> bool:
    """Asks the group; False, without effect, if the request has to be refused or its time is metered."""
    if not request.group_id or call.broker.quotas.is_any:
        return False
    handler = _HANDLERS[type(request)]
    owed = _OwedAnswer(call, dispatch, handler)
    call.slot.on_cancel = owed.cancel
    if call.submit_to_group(Operation.READ, handler.event_of(call, request, owed), owed):
        return True
    call.slot.on_cancel = None
    return False


class _OwedAnswer(msgspec.Struct, eq=False):
    """A reply token: told the answer like a future, and sends it."""

    call: Call
    dispatch: Dispatch
    handler: Any
    is_done: bool = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, answer: Any) -> None:
        call = self.call
        header = call.slot.header
        try:
            pieces = self.handler.frame_of(call.version, header.correlation_id, answer)
            if answer.error:
                self.dispatch.count_error(header.api_key, answer.error)
        except Exception:
            call.connection.failed(call.slot)
            self._end_unanswered()
            return
        self.is_done = True
        call.slot.on_cancel = None
        call.connection.answered(call.slot, pieces)

    def set_exception(self, error: BaseException) -> None:
        """A bug; the connection is closed, as with any other request that failed."""
        self.call.connection.failed(self.call.slot, error)
        self._end_unanswered()

    def cancel(self) -> None:
        """The client has gone."""
        if not self.is_done:
            self._end_unanswered()

    def _end_unanswered(self) -> None:
        self.is_done = True
        slot = self.call.slot
        slot.on_cancel = None
        self.call.connection.answered(slot, None)
