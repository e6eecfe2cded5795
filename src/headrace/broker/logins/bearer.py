"""OAUTHBEARER on one connection. Loaded only if tokens are used: their library is the largest part of a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.logins.token_errors import BadToken
from headrace.broker.logins.tokens import check_token, key_id_of
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.mechanisms.exchange import Refused, SaslStep, refused
from headrace.security.mechanisms.oauthbearer import INVALID_TOKEN, OAUTHBEARER, read_bearer
from headrace.security.names import ORGANISATION, LoginName, is_user_name

if TYPE_CHECKING:
    from headrace.broker.logins.logins import Logins


class BearerExchange:
    """A token. The audit log gets the reason for a refusal; the client only learns of the refusal."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self._why = ""
        self._claimed = ""

    async def step(self, message: bytes) -> SaslStep:
        if self._why:
            raise Refused(INVALID_TOKEN.decode(), self._claimed, self._why)
        bearer = read_bearer(message)
        try:
            return await self._checked(bearer.token, bearer.authorization)
        except BadToken as error:
            self._why = f"the token is refused: {error}"
        return SaslStep(INVALID_TOKEN)

    async def _checked(self, token: str, authorization: str) -> SaslStep:
        assert self._logins.keys is not None
        key = await self._logins.keys.find(key_id_of(token))
        if key is None:
            raise BadToken("it was signed with an unknown key")
        claims = await self._logins.workers.run(check_token, token, key, self._logins.options)
        self._claimed = claims.user
        if authorization not in ("", claims.user):
            raise refused(OAUTHBEARER, claims.user, "it asks to act as another user")
        organisation = claims.organisation or DEFAULT_ORGANISATION
        if not is_user_name(claims.user) or not ORGANISATION.fullmatch(organisation):
            raise BadToken("its user or organisation has an invalid name")
        return SaslStep(user=LoginName(organisation, claims.user), expires_at_s=claims.expires_at_s)
