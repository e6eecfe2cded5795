"""Live values: one stream of server-sent events per browser, shared by its tabs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import msgspec
from starlette.responses import StreamingResponse

from headrace.console.api.overview import show_overview
from headrace.console.endpoints import ApiQuestion
from headrace.console.errors import ApiError, as_api_error
from headrace.console.state import ConsoleState
from headrace.console.visitors import Visitor

_EVERY_S = 2.0
_STREAMS_MAX = 8
"""Of one visitor."""


def event_stream(state: ConsoleState, visitor: Visitor, threads: ThreadPoolExecutor) -> StreamingResponse:
    if visitor.streams >= _STREAMS_MAX:
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, "Too many event streams: close other tabs.")
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(state, visitor, threads), media_type="text/event-stream", headers=headers)


async def _events(state: ConsoleState, visitor: Visitor, threads: ThreadPoolExecutor) -> AsyncIterator[bytes]:
    question = ApiQuestion({}, {}, None, state, visitor)
    loop = asyncio.get_running_loop()
    visitor.streams += 1
    state.watchers += 1
    try:
        while True:
            try:
                found = await loop.run_in_executor(
                    threads, lambda: visitor.call(lambda cluster: show_overview(cluster, question))
                )
                yield b"event: overview\ndata: " + msgspec.json.encode(found) + b"\n\n"
            except Exception as error:
                trouble = as_api_error(error)
                if trouble is None:
                    raise
                said = msgspec.json.encode({"error": trouble.sentence, "code": trouble.code})
                yield b"event: trouble\ndata: " + said + b"\n\n"
                if trouble.status is HTTPStatus.UNAUTHORIZED:
                    return  # logged out: the stream ends with the session
            await asyncio.sleep(_EVERY_S)
    finally:
        visitor.streams -= 1
        state.watchers -= 1
