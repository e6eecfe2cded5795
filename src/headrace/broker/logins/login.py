"""The login of one connection: its SASL exchange, and its principal from then on.

The same machine serves new connections and re-authentication (KIP-368), where the principal must stay the same. It
answers messages; the connection sends the answers, waits where an answer is delayed, and closes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from headrace.security.caller import Caller, Principal
from headrace.security.listeners import Listener
from headrace.security.mechanisms.exchange import Refused, SaslStep
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.broker.logins.exchanges import Exchange
    from headrace.broker.logins.logins import Logins

_LEAST_BETWEEN_S = 1.0
"""Between two logins of one connection."""
REFUSAL_DELAY_S = 0.1
"""As in Kafka: whoever guesses has to wait."""
LINGER_S = 1.0
"""How long a client has to take its refusal and close: some drop an answer that comes together with the end."""


class Verdict(msgspec.Struct, frozen=True):
    """How a login goes on."""

    message: bytes = b""
    is_done: bool = False
    """The client is who it says it is."""
    trouble: str = ""
    """The message for a refused client."""
    lifetime_ms: int = 0


class Login:
    """One connection's."""

    def __init__(self, logins: Logins, listener: Listener, host: str) -> None:
        self.caller: Caller | None = None
        """The client's identity, once it is proven."""
        self.expires_at_s = math.inf
        """When it has to have proved it again."""
        self.mechanism = ""
        self._logins = logins
        self._listener = listener
        self._host = host
        self._exchange: Exchange | None = None
        self._asked_mechanism = ""
        self._done_at_s = -math.inf

    @property
    def is_exchanging(self) -> bool:
        """Whether a handshake was made and the exchange is not over."""
        return self._exchange is not None

    @property
    def is_expired(self) -> bool:
        return self._logins.now_s() >= self.expires_at_s

    def handshake(self, mechanism: str) -> tuple[SaslHandshakeResponse, bool]:
        """The answer, and whether the connection goes on."""
        offered = list(self._logins.offered(self._listener))
        if self.is_exchanging:
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, offered), False
        if self.caller is not None and self._logins.now_s() - self._done_at_s < _LEAST_BETWEEN_S:
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, offered), True
        if mechanism not in offered:
            why = "the mechanism is not offered"
            self._logins.audit.refused("", self._listener.name, self._host, mechanism[:40], why)
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered), False
        self._asked_mechanism = mechanism
        self._exchange = self._logins.exchange(mechanism)
        return SaslHandshakeResponse(ErrorCode.NONE, offered), True

    async def authenticate(self, message: bytes) -> Verdict:
        """The result of the client's next message. After an error, and TooManyLogins, the connection is closed."""
        exchange = self._exchange
        assert exchange is not None
        try:
            if self.caller is not None and self._asked_mechanism != self.mechanism:
                raise Refused(
                    f"SASL mechanism '{self._asked_mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self.mechanism}'",
                    why="a different mechanism than before",
                )
            step = await exchange.step(message)
            if step.user is None:
                return Verdict(step.message)
            self._let_in(step)
        except Refused as refusal:
            self._exchange = None
            self._logins.audit.refused(
                refusal.claimed, self._listener.name, self._host, self._asked_mechanism, refusal.why
            )
            return Verdict(trouble=str(refusal))
        return Verdict(step.message, is_done=True, lifetime_ms=self._lifetime_ms(step))

    def _let_in(self, step: SaslStep) -> None:
        assert step.user is not None
        organisation, user = step.user
        caller = Caller(Principal("User", user), organisation, self._listener.name, self._host)
        if not self._logins.is_organisation(organisation):
            raise Refused(
                f"Authentication failed during authentication due to invalid credentials with SASL "
                f"mechanism {self._asked_mechanism}",
                str(step.user),
                "no such organisation",
            )
        if self.caller is not None and caller != self.caller:
            raise Refused(
                "Cannot change principals during re-authentication", str(step.user), "a different user than before"
            )
        what = "login" if self.caller is None else "login again"
        self.caller, self.mechanism = caller, self._asked_mechanism
        self._exchange = None
        self._done_at_s = self._logins.now_s()
        self._logins.audit.let_in(what, caller, self.mechanism)

    def _lifetime_ms(self, step: SaslStep) -> int:
        """How long the login holds, 0 for ever; the token's own time and the setting, whichever ends first."""
        most_ms = self._logins.options.connections_max_reauth_ms
        left_ms = math.inf
        if step.expires_at_s is not None:
            left_ms = max(1.0, (step.expires_at_s - self._logins.wall_s()) * 1000)
        lifetime_ms = min(left_ms, most_ms or math.inf)
        self.expires_at_s = self._done_at_s + lifetime_ms / 1000
        return 0 if lifetime_ms == math.inf else int(lifetime_ms)


def answer(verdict: Verdict) -> SaslAuthenticateResponse:
    """A verdict as SaslAuthenticate carries it."""
    if verdict.trouble:
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, verdict.trouble)
    return SaslAuthenticateResponse(ErrorCode.NONE, None, verdict.message, session_lifetime_ms=verdict.lifetime_ms)
