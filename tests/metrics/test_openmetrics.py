"""OpenMetrics, read by the parser of Prometheus' Python client, and who gets it."""

from __future__ import annotations

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from headrace.metrics.formats import TextFormat, negotiated
from headrace.metrics.histogram import Exemplar, Histogram
from headrace.metrics.table import METRICS, MetricKind
from headrace.metrics.text import Sample, render


def openmetrics(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def test_every_metric_is_read_by_its_family_with_its_kind() -> None:
    histogram = Histogram()
    histogram.observe(0.003)
    values: dict[MetricKind, float | Histogram] = {
        MetricKind.HISTOGRAM: histogram,
        MetricKind.COUNTER: 3,
        MetricKind.GAUGE: 2.5,
    }
    samples = [Sample(one.name, tuple('a"b\\c\nd' for _ in one.labels), values[one.kind]) for one in METRICS.values()]
    text = "".join(render(samples, TextFormat.OPENMETRICS, node="3"))
    families = {family.name: family for family in openmetrics(text)}
    assert text.endswith("\n# EOF\n")
    for metric in METRICS.values():
        family = families.pop(metric.name.removesuffix("_total"))
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        assert dict.fromkeys(metric.labels, 'a"b\\c\nd').items() <= family.samples[0].labels.items()
        if metric.kind is not MetricKind.HISTOGRAM:
            assert [(one.name, one.value) for one in family.samples] == [(metric.name, values[metric.kind])]
    assert families == {}


def test_an_exemplar_is_in_the_bucket_of_its_value() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.5, 7.0):
        histogram.observe(value)
    histogram.exemplify(Exemplar("a" * 32, 1.4, 1794841659.6))
    histogram.exemplify(Exemplar("b" * 32, 1.5, 1794841659.7))
    histogram.exemplify(Exemplar("c" * 32, 7.0, 1794841659.8))
    samples = [Sample("headrace_request_seconds", ("Produce",), histogram)]
    (family,) = openmetrics("".join(render(samples, TextFormat.OPENMETRICS)))
    found = {one.labels["le"]: one.exemplar for one in family.samples if one.exemplar}
    assert {bound: (one.labels["trace_id"][0], one.value) for bound, one in found.items()} == {
        "2.0": ("b", 1.5),
        "+Inf": ("c", 7.0),
    }
    assert str(found["2.0"].timestamp).startswith("1794841659.7")
    assert "trace_id" not in "".join(render(samples))


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TextFormat.PROMETHEUS),
        ("*/*", TextFormat.PROMETHEUS),
        ("text/html,application/xhtml+xml,*/*;q=0.8", TextFormat.PROMETHEUS),
        ("application/openmetrics-text", TextFormat.OPENMETRICS),
        ('Application/OpenMetrics-Text; Version="1.0.0"', TextFormat.OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TextFormat.PROMETHEUS),
        ("application/openmetrics-text;q=0, text/plain;q=0.1", TextFormat.PROMETHEUS),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.5", TextFormat.PROMETHEUS),
        ("text/plain;q=0.3, application/openmetrics-text;q=0.5", TextFormat.OPENMETRICS),
        ("application/openmetrics-text;q=often, */*;q=0.1", TextFormat.PROMETHEUS),
        (  # Prometheus 2
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            TextFormat.OPENMETRICS,
        ),
        (  # Prometheus 3
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            TextFormat.OPENMETRICS,
        ),
        (  # Prometheus with native histograms: protobuf first, which we do not have
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
            "text/plain;version=0.0.4;q=0.8,application/openmetrics-text;version=1.0.0;q=0.7",
            TextFormat.PROMETHEUS,
        ),
    ],
)
def test_a_scraper_gets_what_it_wants_most(accept: str, form: TextFormat) -> None:
    assert negotiated(accept) is form
