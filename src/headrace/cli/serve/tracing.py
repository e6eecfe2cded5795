"""Spans of some requests for OpenTelemetry: produce, fetch, append, cold read.

Functions are wrapped when a node starts, as OpenTelemetry's own instrumentations do. Without `tracing_endpoint` nothing
is wrapped and no package is loaded, so there is no cost. Kafka's requests carry no trace context, so each produce or
fetch is the root of its trace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.broker.metrics.requests import error_names
from headrace.metrics.histogram import Exemplar
from headrace.store.embedded.data_directory import CannotStart
from headrace.store.partition.appending import Appender
from headrace.wire.apis import FETCH, PRODUCE

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from headrace.broker.network.requests import RequestSlot
    from headrace.broker.network.server import Server
    from headrace.cli.settings.table import Settings
    from headrace.clock import Clock
    from headrace.store.store import Store

_NAMES = {PRODUCE: "produce", FETCH: "fetch"}
_EXPORT_WAIT_S = 2


def trace_node(settings: Settings, store: Store, server: Server) -> Callable[[], Awaitable[None]]:
    """Starts tracing if it is configured; returns a function that sends the last spans when the node stops."""
    if not settings.tracing_endpoint:
        return _nothing
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
    except ImportError:
        raise CannotStart("tracing_endpoint needs packages: pip install 'headrace[tracing]'") from None
    node = {"service.name": "headrace", "service.version": __version__, "service.instance.id": str(store.nodes.me.id)}
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(1 / settings.tracing_one_in), resource=Resource.create(node)
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(settings.tracing_endpoint, timeout=_EXPORT_WAIT_S)))
    tracer = provider.get_tracer("headrace", __version__)
    _trace_requests(tracer, server, store.clock)
    _trace_cold_reads(tracer, store)
    undo = _trace_appends(tracer)

    async def stop() -> None:
        undo()
        await asyncio.to_thread(provider.shutdown)  # sends the rest; may wait for an unavailable collector

    return stop


async def _nothing() -> None:
    """Nothing to send."""


def _trace_requests(tracer: Tracer, server: Server, clock: Clock) -> None:
    from opentelemetry.trace import SpanKind, Status, StatusCode, format_trace_id, get_current_span

    answer, answered = server.dispatch.answer, server.requests.answered

    async def traced(slot: RequestSlot, connection: Any) -> Any:
        header = slot.header
        if (name := _NAMES.get(header.api_key)) is None:
            return await answer(slot, connection)
        with tracer.start_as_current_span(name, kind=SpanKind.SERVER) as span:
            if not span.is_recording():
                return await answer(slot, connection)
            span.set_attribute("messaging.system", "kafka")
            span.set_attribute("messaging.client.id", header.client_id or "")
            span.set_attribute("headrace.api_version", header.api_version)
            span.set_attribute("headrace.request_bytes", slot.size_bytes)
            pieces = await answer(slot, connection)
            span.set_attribute("headrace.response_bytes", sum(map(len, pieces or ())))
            trace_id = format_trace_id(span.get_span_context().trace_id)
            took_s = time.perf_counter() - slot.began_s
            server.requests.traced(header.api_key, Exemplar(trace_id, took_s, clock.wall_ms() / 1000))
            return pieces

    def noted(api_key: int, response: Any) -> None:
        span = get_current_span()
        if span.is_recording() and (names := error_names(api_key, response)):
            span.set_attribute("error.type", ",".join(names))
            span.set_status(Status(StatusCode.ERROR))
        answered(api_key, response)

    server.dispatch.answer = traced  # type: ignore[method-assign]
    server.dispatch.go_straight = lambda slot, connection: False  # type: ignore[method-assign]
    """A span is the context of a task, and requests on the straight road have no task."""
    server.requests.answered = noted  # type: ignore[method-assign]


def _trace_appends(tracer: Tracer) -> Callable[[], None]:
    from opentelemetry.trace import get_current_span

    submit = Appender.submit

    def traced(self: Any, batch: Any, header: Any, *rest: Any, **named: Any) -> Any:
        if not get_current_span().is_recording():
            return submit(self, batch, header, *rest, **named)
        span = tracer.start_span("append")
        span.set_attribute("messaging.destination.name", self.partition.topic.name)
        span.set_attribute("messaging.destination.partition.id", str(self.partition.number))
        span.set_attribute("messaging.batch.message_count", header.count)
        future = submit(self, batch, header, *rest, **named)

        def end(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                span.record_exception(error)
            span.end()

        future.add_done_callback(end)
        return future

    Appender.submit = traced  # type: ignore[method-assign]

    def undo() -> None:
        Appender.submit = submit  # type: ignore[method-assign]

    return undo


def _trace_cold_reads(tracer: Tracer, store: Store) -> None:
    read = store.cold_reads.read

    async def traced(partition: Any, offset: int, max_bytes: int) -> Any:
        with tracer.start_as_current_span("cold read") as span:
            span.set_attribute("messaging.destination.name", partition.topic.name)
            span.set_attribute("messaging.destination.partition.id", str(partition.number))
            span.set_attribute("headrace.offset", offset)
            return await read(partition, offset, max_bytes)

    store.cold_reads.read = traced  # type: ignore[method-assign]
