"""A connection with a login that may have to be renewed (KIP-368).

Separate from `Connection` so that only such connections pay for the check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.logins.login import LINGER_S
from headrace.broker.network.connection import Connection
from headrace.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from headrace.broker.access import Access
    from headrace.broker.logins.login import Login
    from headrace.broker.network.frame_buffers import Frame
    from headrace.broker.network.server import Server
    from headrace.wire.frame import RequestHeader

_OF_LOGINS = (SASL_HANDSHAKE, SASL_AUTHENTICATE)


class SaslConnection(Connection):
    """Served until the login has expired; then only a new login is."""

    def __init__(self, server: Server, access: Access, login: Login, peer: str) -> None:
        super().__init__(server, access)
        self.login = login
        self.peer_host, self.peer = access.caller.host, peer
        self._ends_with_answers = False

    def end_after_answer(self) -> None:
        """Closes after the client had time to read the answer, or sends anything else."""
        self._ends_with_answers = True
        self._server.loop.call_later(LINGER_S, self.close, "")

    def _start(self, header: RequestHeader, frame: Frame) -> None:
        assert self.login is not None
        if self._ends_with_answers:
            self._refuse(frame, "")
            return
        if header.api_key not in _OF_LOGINS:
            if self.login.is_exchanging:
                self._refuse(frame, "a request came in the middle of a login")
                return
            if self.login.is_expired:
                self._refuse(frame, "the login has expired")
                return
        super()._start(header, frame)

    def _refuse(self, frame: Frame, why: str) -> None:
        self._server.budget.request_done(len(frame))
        self._server.frame_buffers.give(frame)
        self.close(why)
