"""Spans of a produce, its append, a fetch and its cold read reach a collector, linked as they were caused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headrace.client import Cluster, Producer, Reader
from tests.broker.test_metrics import scrape
from tests.broker_process import free_port, wait_until
from tests.conftest import StartBroker
from tests.metrics.test_openmetrics import openmetrics
from tests.tiered import BROKER, TieredTopic


class Collector:
    """What an OTLP collector is to an exporter."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                spans.extend(span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_spans_are_linked_as_they_were_caused(
    collector: Collector, start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    lake = tmp_path / "lake"
    lake.mkdir()
    port = free_port()
    broker = start_broker(lake=lake, tracing_endpoint=collector.address, tracing_one_in=1, http_port=port, **BROKER)
    topic = TieredTopic(broker, lake, "orders")
    topic.fill(100)
    with Cluster(broker.address) as cluster:
        Reader(cluster).fetch({("orders", 0): 0})
    wait_until(lambda: bool(collector.named("cold read")), "no span of a cold read came")
    fetches = {span.span_id: span for span in collector.named("fetch")}
    produces = {span.span_id: span for span in collector.named("produce")}
    cold, append = collector.named("cold read")[0], collector.named("append")[0]
    wait_until(lambda: cold.parent_span_id in {s.span_id for s in collector.named("fetch")}, f"of none of {fetches}")
    assert append.parent_span_id in produces
    assert attributes(append) == {
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 50,
    }
    assert attributes(produces[append.parent_span_id])["messaging.system"] == "kafka"
    _, text = scrape(port, accept="application/openmetrics-text")
    seen = {one.exemplar.labels["trace_id"] for family in openmetrics(text) for one in family.samples if one.exemplar}
    assert seen
    wait_until(lambda: seen <= {span.trace_id.hex() for span in collector.spans}, "exemplars of no trace")


def test_few_are_traced_if_few_are_asked_for(
    collector: Collector, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    broker = start_broker(tracing_endpoint=collector.address, tracing_one_in=1_000_000_000)
    with Cluster(broker.address) as cluster, Producer(cluster) as producer:
        producer.send("orders", b"1")
    broker.stop()
    assert collector.spans == []
