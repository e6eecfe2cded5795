"""Checks on every request before it is routed, and security headers on every response.

Other sites' pages must not be able to use the console: Host is checked against DNS rebinding, and Origin and
Sec-Fetch-Site on everything but plain GETs. A content security policy limits the browser to this origin.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.console.settings import LOOPBACK_NAMES, ConsoleSettings

_CSP = (
    "default-src 'none'; script-src 'self'; style-src '{style}'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_SAFE_METHODS = ("GET", "HEAD")
_PROBES = "/health/"
"""Used by programs, by IP address; no names in the response."""
_SAME_SITE = ("same-origin", "none")


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, style_hash: str) -> None:
        self._app = app
        self._settings = settings
        self._public_host = urlsplit(settings.public_url).netloc.lower()
        self._headers = [(b"content-security-policy", _CSP.format(style=style_hash).encode()), *_HEADERS]
        if settings.is_secure:
            self._headers.append((b"strict-transport-security", b"max-age=31536000"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        trouble = self.refusal(scope)
        if trouble:
            await _refuse(trouble, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> str:
        """Why a request is refused; empty if it is allowed."""
        if scope["path"].startswith(_PROBES) or (scope["path"] == "/metrics" and not self._settings.is_loopback):
            return ""  # metrics check their token
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "").lower()
        if not self._is_ours(host):
            return "The console does not serve this host name: open it by its address."
        if scope["method"] in _SAFE_METHODS:
            return ""
        if headers.get("sec-fetch-site", "none") not in _SAME_SITE:
            return "This request comes from another site."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in (host, self._public_host or host):
            return "This request comes from another site."
        return ""

    def _is_ours(self, host: str) -> bool:
        if self._public_host and host == self._public_host:
            return True
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        if name in LOOPBACK_NAMES:
            return True
        # Over the network there are TLS and logins: the certificate protects the name.
        return not self._settings.is_loopback and bool(host)


async def _refuse(trouble: str, send: Send) -> None:
    body = msgspec.json.encode({"error": trouble, "code": "REFUSED"})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": HTTPStatus.FORBIDDEN.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
