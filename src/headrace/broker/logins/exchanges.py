"""The mechanisms on one connection: the pure rules, combined with users, threads and keys."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from headrace.security.mechanisms.exchange import SaslStep, refused
from headrace.security.mechanisms.plain import PLAIN, read_plain
from headrace.security.mechanisms.scram import ScramServer
from headrace.security.names import LoginName, parse_login_name
from headrace.security.verifiers import SCRAM_SHA_256, SCRAM_SHA_512

if TYPE_CHECKING:
    from headrace.broker.logins.logins import Logins

_NONCE_BYTES = 24


class Exchange(Protocol):
    """A mechanism's side of one login."""

    async def step(self, message: bytes) -> SaslStep:
        """Raises `Refused`, or TooManyLogins."""


class ScramExchange:
    """SCRAM costs microseconds on this side, so it needs no thread."""

    def __init__(self, logins: Logins, mechanism: str) -> None:
        self._server = ScramServer(
            mechanism,
            lambda name, written: logins.verifier(name, written, mechanism),
            secrets.token_urlsafe(_NONCE_BYTES),
        )

    async def step(self, message: bytes) -> SaslStep:
        return self._server.step(message)


class PlainExchange:
    """A password, checked against the verifiers that SCRAM uses."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins

    async def step(self, message: bytes) -> SaslStep:
        written, password = read_plain(message)
        name = parse_login_name(written)
        mechanism = self._mechanism(name)
        verifier, is_there = self._logins.verifier(name, written, mechanism)
        is_right = await self._logins.passwords.is_right(mechanism, verifier, password)
        if not is_right or not is_there or name is None:
            raise refused(PLAIN, written, "wrong password" if is_there else "no such user")
        return SaslStep(user=name)

    def _mechanism(self, name: LoginName | None) -> str:
        """The user's cheapest credential."""
        user = self._logins.user(name)
        only_long = user is not None and SCRAM_SHA_256 not in user.verifiers and SCRAM_SHA_512 in user.verifiers
        return SCRAM_SHA_512 if only_long else SCRAM_SHA_256
