"""Sessions and logins, kept only in this process's memory.

Without logins at the broker there is one visitor, the person at this machine. With logins, each session has its own
connections with the visitor's name and password, and never shares one with another session.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec

from headrace.client import Cluster
from headrace.client.sasl import Sasl, SaslRefused
from headrace.console.errors import ApiError
from headrace.console.settings import ConsoleSettings

T = TypeVar("T")

CALL_TIMEOUT_S = 10.0
SESSIONS_MAX = 1_000
SESSION_IDLE_S = 8 * 3600.0
_CALLS_AT_ONCE = 6
"""Per visitor: as many as a browser's parallel requests."""
_ATTEMPTS, _ATTEMPTS_WINDOW_S = 10, 60.0
_ADDRESSES_MAX = 10_000
_NOT_OFFERED = "does not offer"


class Visitor:
    """One session: its user, and its connections."""

    def __init__(self, settings: ConsoleSettings, sasl: Sasl | None, address: str) -> None:
        self.token = secrets.token_urlsafe(32)
        self.address = address
        self.streams = 0
        """Open event streams."""
        self.last_seen_s = time.monotonic()
        self._settings = settings
        self._sasl = sasl
        self._idle: list[Cluster] = []
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_CALLS_AT_ONCE)
        self._is_open = True

    @property
    def name(self) -> str:
        return self._sasl.username if self._sasl else ""

    @property
    def organisation(self) -> str:
        return self.name.partition("/")[0] if "/" in self.name else "default"

    def call(self, run: Callable[[Cluster], T]) -> T:
        """Calls `run` with a cluster connection that nobody else uses meanwhile. Blocks: for threads only."""
        if not self._is_open:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "Log in first.", "LOGIN")
        if not self._turns.acquire(timeout=CALL_TIMEOUT_S):
            raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests at once.")
        try:
            cluster = self._take()
            try:
                with cluster.impatient():
                    return run(cluster)
            finally:
                self._give_back(cluster)
        finally:
            self._turns.release()

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.close()

    def _take(self) -> Cluster:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        settings = self._settings
        context = settings.ssl_context()
        return Cluster(settings.bootstrap, CALL_TIMEOUT_S, "headrace-console", context, self._sasl)

    def _give_back(self, cluster: Cluster) -> None:
        with self._lock:
            if self._is_open:
                self._idle.append(cluster)
                return
        cluster.close()


class LoginForm(msgspec.Struct, frozen=True):
    """A visitor's user name and password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"LoginForm({self.user!r})"


class Visitors:
    """All sessions, limited in number and lifetime."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._sessions: OrderedDict[str, Visitor] = OrderedDict()
        self._attempts: OrderedDict[str, deque[float]] = OrderedDict()
        self._anybody = None if settings.needs_login else Visitor(settings, None, "")

    def find(self, token: str) -> Visitor | None:
        """The session of a cookie; without logins, everyone shares one."""
        if self._anybody is not None:
            return self._anybody
        visitor = self._sessions.get(token)
        if visitor is None:
            return None
        now = time.monotonic()
        if now - visitor.last_seen_s > SESSION_IDLE_S:
            self.end(visitor)
            return None
        visitor.last_seen_s = now
        self._sessions.move_to_end(token)
        return visitor

    def count_attempt(self, address: str) -> None:
        """Raises if this address had too many attempts in the last minute."""
        now = time.monotonic()
        attempts = self._attempts.setdefault(address, deque())
        self._attempts.move_to_end(address)
        while attempts and now - attempts[0] > _ATTEMPTS_WINDOW_S:
            attempts.popleft()
        if len(attempts) >= _ATTEMPTS:
            raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, "Too many login attempts: wait a minute.")
        attempts.append(now)
        while len(self._attempts) > _ADDRESSES_MAX:
            self._attempts.popitem(last=False)

    def log_in(self, login: LoginForm, address: str) -> Visitor:
        """A new session, if the broker accepts the login. Blocks: for threads only."""
        mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        if self._settings.security.tls:
            mechanisms.append("PLAIN")  # without TLS it would send the password in the clear
        configured = self._settings.security.sasl
        if configured is not None and configured.mechanism in ("PLAIN", *mechanisms):
            mechanisms = [configured.mechanism]
        for mechanism in mechanisms:
            visitor = Visitor(self._settings, Sasl(mechanism, login.user, login.password), address)
            try:
                visitor.call(lambda cluster: cluster.refresh([]))
                return visitor
            except SaslRefused as error:
                visitor.close()
                if _NOT_OFFERED not in str(error) or mechanism == mechanisms[-1]:
                    raise
            except BaseException:
                visitor.close()
                raise
        raise AssertionError("one of the mechanisms returns or raises")

    def keep(self, visitor: Visitor) -> None:
        self._sessions[visitor.token] = visitor
        while len(self._sessions) > SESSIONS_MAX:
            self.end(next(iter(self._sessions.values())))

    def end(self, visitor: Visitor) -> None:
        if self._sessions.pop(visitor.token, None) is not None:
            visitor.close()

    def close(self) -> None:
        for visitor in [*self._sessions.values(), *([self._anybody] if self._anybody else [])]:
            visitor.close()
