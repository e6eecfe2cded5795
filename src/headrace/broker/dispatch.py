"""From a frame to its answer: which API, which version, which handler.

A handler is `handle(call, request)` in `handlers/<api>.py`, the file named like the API and imported at its first use.
What is not supported gets what Kafka gives: ApiVersions an answer that every client can read, anything else a closed
connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.wire import codec
from headrace.wire.apis import API_VERSIONS, APIS, request_class, snake
from headrace.wire.codec import DecodeError, Pieces
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, response_frame
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.schema import Buffer, Payload

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.connection import Connection

OLDEST_ADVERTISED = {0: 0}
"""Produce is advertised from version 0 although 0 to 2 are refused: old librdkafka asks for it (KAFKA-18659)."""


class CloseConnection(Exception):
    """The connection cannot go on; the message says why."""


class Call(NamedTuple):
    """Who asks, and of whom: what a handler gets beside the request."""

    broker: Broker
    version: int
    client_id: str
    connection: Connection


Handler = Callable[[Call, Any], Awaitable[Payload | None]]


@cache
def handler(api_key: int) -> Handler:
    """The function that answers an API."""
    found: Handler = import_module(f"headrace.broker.handlers.{snake(APIS[api_key].name)}").handle
    return found


def supported_apis() -> list[ApiVersion]:
    """What ApiVersions lists."""
    return [ApiVersion(api.key, OLDEST_ADVERTISED.get(api.key, api.oldest), api.newest) for api in APIS.values()]


class Dispatch:
    """Answers frames."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def answer(self, header: RequestHeader, frame: Buffer, connection: Connection) -> Pieces | None:
        """The answer as buffers; None if there is none to send."""
        key, version = header.api_key, header.api_version
        api = APIS.get(key)
        if api is None:
            raise CloseConnection(f"API {key} is not known")
        if not api.oldest <= version <= api.newest:
            if key == API_VERSIONS:
                unsupported = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, supported_apis())
                return response_frame(key, unsupported, 0, header.correlation_id)
            raise CloseConnection(f"{api.name} version {version} is outside {api.oldest} to {api.newest}")
        try:
            limit = self._broker.options.request_elements_max
            request, _ = codec.decode(request_class(key), version, frame, header.body, limit)
        except DecodeError as error:
            raise CloseConnection(f"a request cannot be read: {error}") from None
        call = Call(self._broker, version, header.client_id or "", connection)
        response = await handler(key)(call, request)
        if response is None:
            return None
        return response_frame(key, response, version, header.correlation_id)
