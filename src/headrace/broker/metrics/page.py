"""The page /metrics: text for Prometheus, rendered in steps so that a large one does not block the event loop.

It names topics and groups. So on addresses other than loopback it requires a bearer token, and on loopback the Host of
this machine: otherwise a site whose name resolves to 127.0.0.1 could read it in a browser.
"""

from __future__ import annotations

import asyncio
import hmac
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from headrace.broker.http.server import HttpAnswer, HttpRequest, answer_json
from headrace.metrics.formats import negotiated
from headrace.metrics.text import render

if TYPE_CHECKING:
    from headrace.broker.metrics.collect import Collector

_LINES_AT_ONCE: Final = 500


class MetricsPage:
    """The metrics page of one node; it exists before there is anything to count."""

    def __init__(self, token: str, *, needs_token: bool, checks_host: bool = False) -> None:
        self.collector: Collector | None = None
        self.node = ""
        self._token = token
        self._needs_token = needs_token
        self._checks_host = checks_host

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if self._needs_token and (refusal := self._refusal(request)) is not None:
            return refusal
        if self._checks_host and not is_local_name(request.headers.get("host", "localhost")):
            return answer_json(HTTPStatus.FORBIDDEN, {"error": "this host name is not this machine's: use 127.0.0.1"})
        if self.collector is None:
            return answer_json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the node is starting"})
        form = negotiated(request.headers.get("accept", ""))
        lines: list[str] = []
        for line in render(self.collector.samples(), form, node=self.node):
            lines.append(line)
            if len(lines) % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return HttpAnswer(HTTPStatus.OK, "".join(lines).encode(), form.value)

    def _refusal(self, request: HttpRequest) -> HttpAnswer | None:
        if not self._token:
            why = "metrics away from loopback need a token: set metrics_token_file"
            return answer_json(HTTPStatus.FORBIDDEN, {"error": why})
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return answer_json(HTTPStatus.UNAUTHORIZED, {"error": "send the header Authorization: Bearer <token>"})
        return None


def is_local_name(host: str) -> bool:
    """Whether a Host header names this machine."""
    name = host.lower() if host.endswith("]") else host.lower().partition(":")[0] if host.count(":") < 2 else host
    if name == "localhost":
        return True
    try:
        return ip_address(name.rpartition("]")[0].lstrip("[") or name.strip("[]")).is_loopback
    except ValueError:
        return False
