"""Checks passwords sent by clients (PLAIN): a key derivation of several milliseconds, off the event loop.

A correct password is cached for a while, not as such but as a hash under a key that only this process has, together
with the verifier: a changed password is checked again.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

from headrace.broker.logins.workers import Workers
from headrace.security.verifiers import Verifier, is_password

_REMEMBERED_S = 60.0
_REMEMBERED = 10_000


class Passwords:
    """Passwords that were right a moment ago, and the way to check others."""

    def __init__(self, workers: Workers, now_s: Callable[[], float]) -> None:
        self._workers = workers
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()
        """Marks of passwords that were right, and until when that holds."""
        self.derivations = 0
        """How many were made."""

    async def is_right(self, mechanism: str, verifier: Verifier, password: str) -> bool:
        """Whether the verifier was made from this password; TooManyLogins if it cannot be said now."""
        mark = hmac.digest(self._key, verifier.stored_key + verifier.salt + password.encode(), "sha256")
        if self._right.get(mark, 0.0) > self._now_s():
            return True
        self.derivations += 1
        is_right = await self._workers.run(is_password, mechanism, verifier, password)
        if is_right:
            self._right[mark] = self._now_s() + _REMEMBERED_S
            self._right.move_to_end(mark)
            if len(self._right) > _REMEMBERED:
                self._right.popitem(last=False)
        return is_right
