"""A small HTTP/1.1 server on the broker's event loop: GET of fixed paths, one request per connection.

Written by hand because that is all it does: it reads no body and keeps no connection alive, so it never has to find
where one request ends and the next begins, which is what a parser is for (docs/dependencies.md). Everything is bounded:
the size of a request, the time of a connection, the number of connections. One too many closes the oldest, so idle
connections cannot block a probe.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

log = logging.getLogger(__name__)

REQUEST_MAX_BYTES: Final = 8 << 10
CONNECTION_MAX_S: Final = 5.0
CONNECTIONS_MAX: Final = 64
_LEFT_OVER_MAX_BYTES: Final = 64 << 10
_REQUEST_LINE: Final = re.compile(rb"([A-Za-z]+) ([!-~]+) HTTP/1\.[01]")


class HttpAnswer(msgspec.Struct, frozen=True):
    """The response of a path."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"

    def encode(self) -> bytes:
        allow = "Allow: GET\r\n" if self.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n{allow}Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + self.body


class HttpRequest(msgspec.Struct, frozen=True):
    """A GET of a path."""

    path: str
    headers: dict[str, str]
    """Names in lower case; of several with one name the last."""


Routes = Mapping[str, Callable[[HttpRequest], Awaitable[HttpAnswer]]]
"""Path -> who answers a GET of it."""


def answer_json(status: HTTPStatus, content: object) -> HttpAnswer:
    return HttpAnswer(status, msgspec.json.encode(content) + b"\n")


def _refuse(status: HTTPStatus, why: str) -> HttpAnswer:
    return answer_json(status, {"error": why})


class HttpServer:
    """Serves a table of routes between `start` and `stop`."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._listener: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}

    async def start(self, listener: socket.socket) -> None:
        """Serves on a socket that is bound already."""
        serve = asyncio.start_unix_server if listener.family == socket.AF_UNIX else asyncio.start_server
        self._listener = await serve(self._connected, sock=listener, limit=REQUEST_MAX_BYTES)

    def stop(self) -> None:
        """Closes all connections at once."""
        if self._listener is not None:
            self._listener.close()
        for writer in self._open:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(CONNECTION_MAX_S):
                answer = await self._answer(reader)
                if writer.is_closing():
                    return  # we closed it, to stop or as the oldest of too many: uvloop allows no more writes
                writer.write(answer.encode())
                await writer.drain()
                writer.write_eof()
                await _read_to_end(reader)
        except (TimeoutError, OSError, EOFError):
            pass  # too slow, or gone
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> HttpAnswer:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            why = f"a request may have {REQUEST_MAX_BYTES} bytes"
            return _refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        asked = _REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0])
        if asked is None:
            return _refuse(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
        method, path = asked[1], asked[2].partition(b"?")[0].decode()
        route = self._routes.get(path)
        if route is None:
            return _refuse(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._routes)}")
        if method != b"GET":
            return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered")
        try:
            return await route(HttpRequest(path, _headers(head)))
        except Exception:
            log.exception("rendering a page failed", extra={"path": path})
            return _refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "check the broker's log")


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines if name}


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    """Until the client closes: the system discards an answer that is under way if we close on unread bytes."""
    left = _LEFT_OVER_MAX_BYTES
    while left > 0 and (received := await reader.read(left)):
        left -= len(received)
