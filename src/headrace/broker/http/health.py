"""Liveness and readiness of a node, for orchestrators.

Live means that the event loop runs, which any response proves. It says nothing about Redis: a restart would not bring
that back. Ready means that a client's request would be served now.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headrace.broker.http.server import HttpAnswer, HttpRequest, Routes, answer_json

if TYPE_CHECKING:
    from headrace.broker.network.server import Server
    from headrace.store.store import Store

_STORE_PATIENCE_S: Final = 1.0


class Health:
    """The health of one node. It exists before the store; the other parts are set as they start."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.server: Server | None = None
        self._looking: asyncio.Task[bool] | None = None

    @property
    def routes(self) -> Routes:
        return {"/health/live": self.live, "/health/ready": self.ready}

    async def live(self, _: HttpRequest) -> HttpAnswer:
        return answer_json(HTTPStatus.OK, {"live": True})

    async def ready(self, _: HttpRequest) -> HttpAnswer:
        missing = await self.missing()
        if missing:
            return answer_json(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "missing": missing})
        return answer_json(HTTPStatus.OK, {"ready": True})

    async def missing(self) -> dict[str, str]:
        """The reasons why requests cannot be served; empty if they can."""
        answers = await self._store_answers()
        store, server = self.store, self.server
        missing = {}
        if not answers:
            why = "" if store is None or store.link.is_up else f": {store.link.why_away}"
            missing["store"] = f"Redis does not answer{why}"
        if store is None or not store.nodes.goes_on:
            missing["lease"] = "this node's lease is not valid"
        if store is None or not store.is_loaded:
            missing["catalogue"] = "topics and configs have not been read"
        if server is None or not server.is_listening:
            missing["listening"] = "no connections are accepted"
        return missing

    async def _store_answers(self) -> bool:
        """All who ask at a time share one look: however many there are, Redis has no more work."""
        if self.store is None:
            return False
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self.store.answers(_STORE_PATIENCE_S), name="health")
        return await asyncio.shield(self._looking)
