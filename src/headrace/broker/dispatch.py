"""From a frame to its response: API, version, handler.

A handler is `handle(call, request)` in `handlers/<api>.py`, named like the API and imported on first use. APIs of
missing features get an error (`refused_apis`). Unknown APIs and versions get what Kafka gives: ApiVersions a response
that every client can read, anything else a closed connection and a log line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

from headrace.broker.call import Call
from headrace.broker.quotas.throttling import STRICT_SINCE, Timed, is_timed, settle
from headrace.broker.refusals.apis import REFUSED, refuse
from headrace.broker.rights.asking import NotAuthorized
from headrace.broker.rights.error_responses import error_response
from headrace.broker.rights.table import cluster_right
from headrace.wire import codec
from headrace.wire.apis import (
    API_VERSIONS,
    APIS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    OTHER_NAMES,
    PRODUCE,
    SPOKEN,
    SYNC_GROUP,
    request_class,
    snake,
)
from headrace.wire.codec import MALFORMED, DecodeError, Pieces
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import RequestHeader, response_frame
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.metadata import MetadataResponse
from headrace.wire.schema import Payload

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.metrics.requests import RequestMetrics
    from headrace.broker.network.connection import Connection
    from headrace.broker.network.requests import RequestSlot

OLDEST_ADVERTISED = {0: 0}
"""Produce is advertised from version 0 although 0 to 2 are refused: old librdkafka asks for it (KAFKA-18659)."""

LISTED_ONLY = [
    ApiVersion(83, 0, 0),
    ApiVersion(84, 0, 0),
    ApiVersion(85, 0, 1),
    ApiVersion(86, 0, 0),
    ApiVersion(87, 0, 1),
    ApiVersion(93, 0, 0),
    ApiVersion(94, 0, 0),
]
"""What no client comes to ask: brokers of Apache Kafka send 83 to 87 each other, 93 follows a refused heartbeat, and
94 is about controllers. They are listed because tools tell a broker's version by its list (franz-go's kversion)."""
_STRAIGHT = {PRODUCE: "produce", FETCH: "fetching", JOIN_GROUP: "groups", SYNC_GROUP: "groups", HEARTBEAT: "groups"}
"""Which APIs have a straight road, and the room that it is in."""
_PARTITIONS_ON_LOOP = 1_000
"""So many in Metadata are packed in 2 ms."""
_LONGEST_CLIENT_ID = 100
_LONGEST_PAUSE_MS = (1 << 31) - 1


class CloseConnection(Exception):
    """The connection cannot go on; the message says why."""


Handler = Callable[[Call, Any], Awaitable[Payload | None]]
Work = Callable[[], Coroutine[Any, Any, Payload | None]]
Begin = Callable[[Call, Any, "Dispatch"], bool]
"""Starts a request on the straight road, or leaves it alone."""
Road = tuple[Begin, codec.Decoder]


@cache
def handler(api_key: int) -> Handler:
    """The function that answers an API."""
    if api_key in REFUSED:
        return refuse
    found: Handler = import_module(f"headrace.broker.handlers.{snake(SPOKEN[api_key].name)}").handle
    return found


class _StraightRoads(dict[tuple[int, int], Road]):
    """By API and version, each found when the first request comes. Clients choose both: only valid ones are kept."""

    def __missing__(self, name: tuple[int, int]) -> Road | None:
        key, version = name
        room, api = _STRAIGHT.get(key), SPOKEN.get(key)
        if room is None or api is None or not api.oldest <= version <= api.newest:
            return None
        begin: Begin = import_module(f"headrace.broker.{room}.straight").begin
        found = self[name] = (begin, codec.decoder(request_class(key), version))
        return found


_ROADS = _StraightRoads()


def supported_apis() -> list[ApiVersion]:
    """The APIs that ApiVersions lists."""
    spoken = [ApiVersion(api.key, OLDEST_ADVERTISED.get(api.key, api.oldest), api.newest) for api in APIS.values()]
    return spoken + LISTED_ONLY


def _unknown(header: RequestHeader) -> CloseConnection:
    """One line for the log, with the names that a person looks for: the API's and the client's."""
    key, version = header.api_key, header.api_version
    if (api := SPOKEN.get(key)) is not None:
        what = f"{api.name} version {version} is outside {api.oldest} to {api.newest}"
    elif (name := OTHER_NAMES.get(key)) is not None:
        what = f"{name} (API {key}) is not supported"
    else:
        what = f"API {key} is not known"
    return CloseConnection(f"{what}; the client's id is {(header.client_id or '')[:_LONGEST_CLIENT_ID]!r}")


async def _respond(call: Call, request: Payload, key: int) -> Payload | None:
    """Rights to the whole cluster are checked here; all others when a handler accesses something."""
    try:
        if (operation := cluster_right(key, call.version)) is not None:
            call.check_cluster(operation)
        return await handler(key)(call, request)
    except NotAuthorized as error:
        return error_response(request, error)


def is_long(response: Payload | None) -> TypeGuard[MetadataResponse]:
    """Whether packing it takes long: Metadata grows with the cluster, while others are as long as their requests."""
    if not isinstance(response, MetadataResponse):
        return False
    return sum(len(topic.partitions) for topic in response.topics) > _PARTITIONS_ON_LOOP


async def _framed_aside(call: Call, response: Payload) -> Pieces:
    """In a thread, which the event loop interrupts."""
    header = call.slot.header
    return await asyncio.to_thread(response_frame, header.api_key, response, call.version, header.correlation_id)


class Dispatch:
    """Answers frames."""

    def __init__(self, broker: Broker, metrics: RequestMetrics) -> None:
        self._broker = broker
        self._metrics = metrics
        self.count_error = metrics.count_error

    def go_straight(self, slot: RequestSlot, connection: Connection) -> bool:
        """Answers a request from memory, now or when the store's reply or an append wakes it.

        False if it may need more than that: then nothing was done but reading it.
        """
        header, options = slot.header, self._broker.options
        version = header.api_version
        road = _ROADS[header.api_key, version]
        if road is None or not options.straight_path or not connection.access.is_served:
            return False
        begin, decode = road
        try:
            slot.request, _ = decode(slot.frame, header.body, options.request_elements_max)
        except MALFORMED:
            return False  # the other road says so
        return begin(Call(connection.access, version, header.client_id or "", connection, slot), slot.request, self)

    async def answer(self, slot: RequestSlot, connection: Connection) -> Pieces | None:
        """The answer as buffers; None if there is none to send."""
        header, frame, request = slot.header, slot.frame, slot.request
        key, version = header.api_key, header.api_version
        api = SPOKEN.get(key)
        if api is None:
            raise _unknown(header)
        if not api.oldest <= version <= api.newest:
            if key == API_VERSIONS:
                unsupported = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, supported_apis())
                return response_frame(key, unsupported, 0, header.correlation_id)
            raise _unknown(header)
        if request is None:
            try:
                limit = self._broker.options.request_elements_max
                request, _ = codec.decode(request_class(key), version, frame, header.body, limit)
            except DecodeError as error:
                raise CloseConnection(f"a request cannot be read: {error}") from None
        if not connection.access.is_served:
            raise CloseConnection("its organisation was deleted")
        call = Call(connection.access, version, header.client_id or "", connection, slot)
        if self._broker.quotas.is_any:
            return await self.answer_with(call, partial(_respond, call, request, key))
        return await self._packed_aside(call, await _respond(call, request, key))

    async def answer_with(self, call: Call, work: Work, held_ns: int = 0) -> Pieces | None:
        """The answer that some work comes to; it may have been begun on the straight road, and held the event loop."""
        if not self._broker.quotas.is_any:
            return await self._packed_aside(call, await work())
        call.is_strict = call.version >= STRICT_SINCE.get(call.slot.header.api_key, call.version + 1)
        if is_timed(call):
            timed = Timed(work())
            response = await timed
            held_ns += timed.held_ns
        else:
            response = await work()
        if not is_long(response):
            return self.within_quotas(call, response, held_ns)
        pieces = await self._packed_aside(call, response)
        if pause_ms := self.charge(call, pieces or [], held_ns):
            response.throttle_time_ms = pause_ms
            pieces = await _framed_aside(call, response)
        return pieces

    async def _packed_aside(self, call: Call, response: Payload | None) -> Pieces | None:
        """A response as buffers, its errors counted; a long one does not hold up the event loop."""
        if not is_long(response):
            return self.packed(call, response)
        self._metrics.answered(call.slot.header.api_key, response)
        return await _framed_aside(call, response)

    def packed(self, call: Call, response: Payload | None) -> Pieces | None:
        """A response as buffers, its errors counted."""
        if response is None:
            return None
        header = call.slot.header
        self._metrics.answered(header.api_key, response)
        return response_frame(header.api_key, response, call.version, header.correlation_id)

    def within_quotas(self, call: Call, response: Payload | None, held_ns: int) -> Pieces | None:
        """The same for a client that may have a quota: told how long to pause, and muted for that time."""
        pieces = self.packed(call, response)
        pause_ms = self.charge(call, pieces or [], held_ns)
        if pause_ms and hasattr(response, "throttle_time_ms"):
            throttled: Any = response
            throttled.throttle_time_ms = pause_ms
            header = call.slot.header
            return response_frame(header.api_key, throttled, call.version, header.correlation_id)
        return pieces

    def charge(self, call: Call, pieces: Pieces, held_ns: int) -> int:
        """Charges an answered request to its client's quotas; how long it is muted, and has to be told so."""
        pause_ms = settle(call, call.slot.header.api_key, call.slot.size_bytes, pieces, held_ns)
        if pause_ms:
            call.connection.mute(pause_ms)
        return min(pause_ms, _LONGEST_PAUSE_MS)
