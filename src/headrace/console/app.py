"""The application: pages, the API, and the nodes' metrics and health.

Calls to the cluster block, so each runs in a thread; the event loop only moves bytes. If a visitor disconnects, the
call runs on to its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from headrace import __version__
from headrace.console.api.messages import download_message
from headrace.console.api.overview import show_overview
from headrace.console.api.session import SessionShown
from headrace.console.api.table import ENDPOINTS
from headrace.console.endpoints import ApiEndpoint, ApiQuestion
from headrace.console.errors import ApiError, as_api_error
from headrace.console.files import PageFiles
from headrace.console.guard import Guard
from headrace.console.live import event_stream
from headrace.console.openapi import ROOT, document
from headrace.console.relay import health_page, metrics_page
from headrace.console.settings import ConsoleSettings
from headrace.console.state import ConsoleState
from headrace.console.visitors import LoginForm, Visitor
from headrace.metrics.formats import negotiated

log = logging.getLogger(__name__)
audit_log = logging.getLogger("headrace.audit")

BODY_MAX_BYTES = 4 << 20
COOKIE = "headrace_console"
_THREADS = 24
_FIRST_WAIT_S = 0.04
_NAMES = ("name", "group")
"""Fields of a request body that name its resource."""

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


class Application:
    """Routes and their shared state."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.state = ConsoleState(settings)
        self.threads = ThreadPoolExecutor(_THREADS, "call")

    def starlette(self) -> Starlette:
        files = PageFiles()
        routes = [
            Route("/", self._page(files)),
            Route("/metrics", self._metrics),
            Route("/health/live", self._health),
            Route("/health/ready", self._health),
            Route(f"{ROOT}/openapi.json", self._openapi),
            Route(f"{ROOT}/session", self._guarded(self._session), methods=["GET", "POST", "DELETE"]),
            Route(f"{ROOT}/events", self._guarded(self._events)),
            Route(f"{ROOT}/topics/{{topic}}/download", self._guarded(self._download)),
            *(self._route(endpoint) for endpoint in ENDPOINTS),
            Route("/static/{address:path}", files.file),
        ]
        guard = Middleware(Guard, settings=self.settings, style_hash=files.style_hash)
        return Starlette(routes=routes, middleware=[guard], lifespan=self._life)

    @contextlib.asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.create_task(self.state.sample(), name="samples")
        try:
            yield
        finally:
            sampling.cancel()
            self.state.visitors.close()
            self.threads.shutdown(wait=False, cancel_futures=True)

    # Pages, metrics and health

    def _page(self, files: PageFiles) -> Handler:
        """With what the overview shows, if that is known at once; a slow cluster must not hold up the page.

        A link from another site comes without the cookie: then the page asks for the session itself.
        """

        async def page(request: Request) -> Response:
            visitor = self.state.visitors.find(request.cookies.get(COOKIE, ""))
            if visitor is None:
                return files.page(b"{}")
            first: dict[str, object] = {"/session": self._session_of(visitor)}
            question = ApiQuestion({}, {}, None, self.state, visitor)
            look = self._call(visitor, lambda: visitor.call(lambda cluster: show_overview(cluster, question)))
            with contextlib.suppress(Exception):  # the page asks again, and shows what is wrong
                first["/overview"] = await asyncio.wait_for(look, _FIRST_WAIT_S)
            return files.page(msgspec.json.encode(first))

        return page

    async def _openapi(self, _: Request) -> Response:
        return Response(document(), media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        if not self.settings.is_loopback:
            given, token = request.headers.get("authorization", ""), self.settings.metrics_token
            if not token or not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return _json({"error": "send the header Authorization: Bearer <token>"}, HTTPStatus.UNAUTHORIZED)
        if not self.settings.node_sockets:
            return _json({"error": "this console has no nodes of its own"}, HTTPStatus.NOT_FOUND)
        form = negotiated(", ".join(request.headers.getlist("accept")))
        page = await metrics_page(self.settings.node_sockets, form)
        return Response(page.body, page.status, media_type=page.content_type)

    async def _health(self, request: Request) -> Response:
        page = await health_page(self.settings.node_sockets, request.url.path, self.settings.first_node_id)
        return Response(page.body, page.status, media_type=page.content_type)

    # The API

    def _guarded(self, handler: Handler) -> Handler:
        """Answers errors as sentences; a bug is logged once, without details for the visitor."""

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            except Exception as error:
                found = as_api_error(error)
                if found is None:
                    log.exception("a request failed", extra={"path": request.url.path})
                    found = ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error: check the console's log.")
                return _json({"error": found.sentence, "code": found.code}, found.status)

        return guarded

    def _route(self, endpoint: ApiEndpoint) -> Route:
        async def answer(request: Request) -> Response:
            visitor = self._visitor(request)
            kind: type[Any] | None = endpoint.body
            body = await _body(request, kind) if kind is not None else None
            changes = endpoint.changes and getattr(body, "execute", True)
            if changes and self.settings.read_only:
                raise ApiError(HTTPStatus.FORBIDDEN, "This console is read-only.", "READ_ONLY")
            question = ApiQuestion(request.path_params, dict(request.query_params), body, self.state, visitor)
            outcome = "unknown"
            try:
                found = await self._call(visitor, lambda: visitor.call(lambda cluster: endpoint.run(cluster, question)))
                outcome = "done"
            except Exception as error:
                outcome = _outcome(error)
                raise
            finally:
                if changes:
                    self.state.kept.forget(visitor.token)
                    self._audit(request, visitor, endpoint, body, outcome)
            return _json(found)

        return Route(ROOT + endpoint.path, self._guarded(answer), methods=[endpoint.method])

    async def _call(self, visitor: Visitor, run: Callable[[], object]) -> object:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, run)
        except Exception as error:
            found = as_api_error(error)
            if found is not None and found.status is HTTPStatus.UNAUTHORIZED:
                self.state.visitors.end(visitor)  # the password was changed, or the user was deleted
            raise

    def _audit(self, request: Request, visitor: Visitor, endpoint: ApiEndpoint, body: Any, outcome: str) -> None:
        """Logs a change, including refused ones and those with an unknown outcome."""
        named = [
            *request.path_params.values(),
            request.query_params.get("group"),
            *(getattr(body, of, None) for of in _NAMES),
        ]
        audit_log.info(
            "changed by console",
            extra={
                "principal": f"User:{visitor.name or 'ANONYMOUS'}",
                "host": _address(request),
                "what": f"{endpoint.method} {request.url.path}",
                "name_": next((str(name) for name in named if name), ""),
                "outcome": outcome,
            },
        )

    def _visitor(self, request: Request) -> Visitor:
        visitor = self.state.visitors.find(request.cookies.get(COOKIE, ""))
        if visitor is None:
            raise ApiError(HTTPStatus.UNAUTHORIZED, "Log in first.", "LOGIN")
        return visitor

    async def _events(self, request: Request) -> Response:
        return event_stream(self.state, self._visitor(request), self.threads)

    async def _download(self, request: Request) -> Response:
        visitor = self._visitor(request)
        question = ApiQuestion(request.path_params, dict(request.query_params), None, self.state, visitor)
        loop = asyncio.get_running_loop()
        file = await loop.run_in_executor(
            self.threads, lambda: visitor.call(lambda cluster: download_message(cluster, question))
        )
        headers = {"Content-Disposition": f'attachment; filename="{file.name}"', "Cache-Control": "no-store"}
        return Response(file.content, media_type="application/octet-stream", headers=headers)

    # Logins

    async def _session(self, request: Request) -> Response:
        visitors = self.state.visitors
        visitor = visitors.find(request.cookies.get(COOKIE, ""))
        if request.method == "POST" and self.settings.needs_login:
            return await self._log_in(request)
        if request.method == "DELETE" and visitor is not None:
            visitors.end(visitor)
            answer = self._show_session(None if self.settings.needs_login else visitor)
            answer.delete_cookie(COOKIE)
            return answer
        return self._show_session(visitor)

    async def _log_in(self, request: Request) -> Response:
        address = _address(request)
        if not self.settings.is_loopback and not self.settings.is_secure:
            raise ApiError(HTTPStatus.FORBIDDEN, "A login from another machine needs TLS.")
        login = await _body(request, LoginForm)
        self.state.visitors.count_attempt(address)
        loop = asyncio.get_running_loop()
        try:
            visitor = await loop.run_in_executor(self.threads, self.state.visitors.log_in, login, address)
        except Exception:
            audit_log.info("console login refused", extra={"user": login.user[:249], "host": address})
            raise
        self.state.visitors.keep(visitor)
        audit_log.info("console login", extra={"user": login.user, "host": address})
        answer = self._show_session(visitor)
        answer.set_cookie(COOKIE, visitor.token, httponly=True, samesite="strict", secure=self.settings.is_secure)
        return answer

    def _show_session(self, visitor: Visitor | None) -> Response:
        return _json(self._session_of(visitor))

    def _session_of(self, visitor: Visitor | None) -> SessionShown:
        settings = self.settings
        return SessionShown(
            user=visitor.name if visitor else "",
            needs_login=settings.needs_login,
            is_logged_in=visitor is not None,
            read_only=settings.read_only,
            has_nodes=bool(settings.node_sockets),
            bootstrap=settings.bootstrap,
            version=__version__,
        )


def _json(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(content), status.value, headers, media_type="application/json")


def _outcome(error: Exception) -> str:
    found = as_api_error(error)
    return found.code or found.status.phrase if found is not None else "failed"


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _body(request: Request, kind: type[T]) -> T:
    """Parses a body of this type. Only JSON is accepted, because other sites' forms cannot send it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send JSON, with the header Content-Type: application/json.")
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > BODY_MAX_BYTES:
            raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body can have at most {BODY_MAX_BYTES} bytes.")
    try:
        return msgspec.json.decode(received, type=kind)
    except msgspec.DecodeError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, f"The body is invalid: {error}.") from None
