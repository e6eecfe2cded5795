"""SaslAuthenticate on an authenticated connection: re-authentication (KIP-368)."""

from __future__ import annotations

import asyncio

from headrace.broker.call import Call
from headrace.broker.logins.login import REFUSAL_DELAY_S, answer
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

_NO_SASL = "This listener does not ask for SASL authentication."
_NO_HANDSHAKE = "SaslAuthenticate request received after successful authentication"


async def handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    login = call.connection.login
    if login is None or not login.is_exchanging:
        message = _NO_SASL if login is None else _NO_HANDSHAKE
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, message)
    verdict = await login.authenticate(bytes(request.auth_bytes))
    if verdict.trouble:
        await asyncio.sleep(REFUSAL_DELAY_S)
        call.connection.end_after_answer()
    return answer(verdict)
