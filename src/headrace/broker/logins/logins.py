"""Shared by all logins of a node: users, threads for slow steps, token keys, audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.logins.audit import LoginAudit
from headrace.broker.logins.exchanges import Exchange, PlainExchange, ScramExchange
from headrace.broker.logins.options import LoginOptions
from headrace.broker.logins.passwords import Passwords
from headrace.broker.logins.workers import Workers
from headrace.security.certificate_names import CertificateNames
from headrace.security.listeners import Listener
from headrace.security.mechanisms.oauthbearer import OAUTHBEARER
from headrace.security.mechanisms.plain import PLAIN
from headrace.security.names import LoginName
from headrace.security.verifiers import User, Verifier, fake_verifier

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.logins.tokens import KeySet


def _keys(place: str, now_s: Callable[[], float]) -> KeySet:
    from headrace.broker.logins.tokens import KeySet

    return KeySet(place, now_s)


class Logins:
    """Users and how they authenticate."""

    def __init__(self, broker: Broker, options: LoginOptions) -> None:
        self.options = options
        self.now_s = broker.store.clock.monotonic_s
        self.audit = LoginAudit(self.now_s)
        self.workers = Workers()
        self.passwords = Passwords(self.workers, self.now_s)
        self.keys = _keys(options.oauth_jwks, self.now_s) if options.oauth_jwks else None
        self.certificate_names = CertificateNames(options.tls_principal_rules)
        self._store = broker.store

    async def start(self) -> None:
        """Raises NoKeys."""
        if self.keys is not None:
            await self.keys.start()

    def close(self) -> None:
        self.workers.close()
        if self.keys is not None:
            self.keys.close()

    def offered(self, listener: Listener) -> tuple[str, ...]:
        """The mechanisms of a listener."""
        return listener.offered(has_keys=self.keys is not None)

    def exchange(self, mechanism: str) -> Exchange:
        """A new exchange of a mechanism that is offered."""
        if mechanism == PLAIN:
            return PlainExchange(self)
        if mechanism == OAUTHBEARER:
            from headrace.broker.logins.bearer import BearerExchange

            return BearerExchange(self)
        return ScramExchange(self, mechanism)

    def user(self, name: LoginName | None) -> User | None:
        return None if name is None else self._store.users.get(name)

    def verifier(self, name: LoginName | None, written: str, mechanism: str) -> tuple[Verifier, bool]:
        """A user's verifier, and whether the user exists; a fake one if not."""
        user = self.user(name)
        verifier = None if user is None else user.verifiers.get(mechanism)
        if verifier is not None:
            return verifier, True
        return fake_verifier(self._store.login_secret, mechanism, str(name or written)), False

    def is_organisation(self, name: str) -> bool:
        """Whether a login may lead there."""
        return name in self._store.organisations

    def wall_s(self) -> float:
        return self._store.clock.wall_ms() / 1000
