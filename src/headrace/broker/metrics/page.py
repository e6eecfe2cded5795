"""The page /metrics: text for Prometheus, made in steps so that a large one does not hold up the event loop.

Away from loopback it names topics and groups to whoever asks, so there it needs a bearer token.
"""

from __future__ import annotations

import asyncio
import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headrace.broker.http.server import HttpAnswer, HttpRequest, answer_json
from headrace.metrics.text import CONTENT_TYPE, render

if TYPE_CHECKING:
    from headrace.broker.metrics.collect import Collector

_LINES_AT_ONCE: Final = 500


class MetricsPage:
    """Of one node, from before it has anything to count."""

    def __init__(self, token: str, *, needs_token: bool) -> None:
        self.collector: Collector | None = None
        self.node = ""
        self._token = token
        self._needs_token = needs_token

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if self._needs_token and (refusal := self._refusal(request)) is not None:
            return refusal
        if self.collector is None:
            return answer_json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the node is starting"})
        lines: list[str] = []
        for line in render(self.collector.samples(), node=self.node):
            lines.append(line)
            if len(lines) % _LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return HttpAnswer(HTTPStatus.OK, "".join(lines).encode(), CONTENT_TYPE)

    def _refusal(self, request: HttpRequest) -> HttpAnswer | None:
        if not self._token:
            why = "metrics away from loopback need a token: set metrics_token_file"
            return answer_json(HTTPStatus.FORBIDDEN, {"error": why})
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return answer_json(HTTPStatus.UNAUTHORIZED, {"error": "send the header Authorization: Bearer <token>"})
        return None
