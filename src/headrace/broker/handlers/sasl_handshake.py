"""SaslHandshake on an authenticated connection: begins re-authentication (KIP-368)."""

from __future__ import annotations

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def handle(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = call.connection.login
    if login is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    response, goes_on = login.handshake(request.mechanism)
    if not goes_on:
        call.connection.end_after_answer()
    return response
