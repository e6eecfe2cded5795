"""The users of all organisations, with their password verifiers: a hash that every node caches.

A row is named `<organisation>/<user>`, so one lookup finds a user by its login name, and nobody can list another
organisation's users: every caller names its own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.clock import Clock
from headrace.security.names import LoginName
from headrace.security.verifiers import User, Verifier
from headrace.store.cluster.shared_hash import SharedHash
from headrace.store.redis.topology import Topology


class _Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user as it stands in Redis."""

    scram: dict[str, tuple[str, int, str, str]] = {}
    """Mechanism -> salt, iterations, stored key, server key."""
    super_user: bool = msgspec.field(name="super", default=False)


class Users(SharedHash):
    """This node's copy of the users."""

    def __init__(self, topology: Topology, key: str, clock: Clock) -> None:
        super().__init__(topology, key, clock)
        self.on_change: Callable[[], None] | None = None
        self._users: dict[str, User] = {}

    def get(self, name: LoginName) -> User | None:
        return self._users.get(str(name))

    def of(self, organisation: str) -> dict[str, User]:
        """The users of an organisation, by name."""
        prefix = f"{organisation}/"
        return {name.removeprefix(prefix): user for name, user in self._users.items() if name.startswith(prefix)}

    def has_super_user(self, organisation: str) -> bool:
        return any(user.is_super for user in self.of(organisation).values())

    async def update(self, name: LoginName, decide: Callable[[User | None], User | None]) -> None:
        """Replaces a user by the result of `decide`, None meaning no user; retries if another node was faster."""
        while True:
            user = decide(self.get(name))
            if await self.change(str(name), None if user is None else _packed(user)):
                return

    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        found = {name: None if row is None else _unpacked(row) for name, row in changed.items()}
        for name, user in found.items():
            if user is None:
                self._users.pop(name, None)
            else:
                self._users[name] = user
        if changed and self.on_change is not None:
            self.on_change()


def _packed(user: User) -> bytes:
    scram: dict[str, Any] = {
        mechanism: (_text(one.salt), one.iterations, _text(one.stored_key), _text(one.server_key))
        for mechanism, one in user.verifiers.items()
    }
    return msgspec.json.encode(_Row(scram, user.is_super))


def _unpacked(row: bytes) -> User:
    read = msgspec.json.decode(row, type=_Row)
    verifiers = {
        mechanism: Verifier(base64.b64decode(salt), iterations, base64.b64decode(stored), base64.b64decode(server))
        for mechanism, (salt, iterations, stored, server) in read.scram.items()
    }
    return User(verifiers, read.super_user)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
