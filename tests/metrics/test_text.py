"""The text is what Prometheus reads, and the names that dashboards rely on stay."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headrace.metrics.histogram import Histogram
from headrace.metrics.page import render_docs
from headrace.metrics.table import METRICS
from headrace.metrics.text import Sample, render

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "metrics.md"
FROZEN = HERE / "frozen_names.txt"


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Sample name -> labels -> value, as the Prometheus client's own parser reads it."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.observe(value)
    assert list(histogram.cumulated()) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert (histogram.count, histogram.total) == (4, 10.0)


def test_prometheus_reads_what_is_written() -> None:
    histogram = Histogram()
    histogram.observe(0.003)
    name = 'a"b\\c\nd'
    samples = [
        Sample("headrace_topic_bytes_in_total", ("default", name), 12345678901),
        Sample("headrace_topic_bytes_in_total", ("default", "plain"), 2),
        Sample("headrace_request_seconds", ("Produce",), histogram),
        Sample("process_start_time_seconds", (), 1794841659.691),
    ]
    found = parsed("".join(render(samples, node="3")))
    labels = (("node", "3"), ("organisation", "default"), ("topic", name))
    assert found["headrace_topic_bytes_in_total"][labels] == 12345678901
    assert found["headrace_request_seconds_count"][("api", "Produce"), ("node", "3")] == 1
    assert found["process_start_time_seconds"][(("node", "3"),)] == 1794841659.691


def test_names_kinds_and_labels_stay() -> None:
    """Dashboards and alerts rely on them. A new one is added to the file; none leaves it or changes."""
    lines = [f"{one.name} {one.kind} {','.join(one.labels)}".strip() for one in METRICS.values()]
    assert sorted(lines) == FROZEN.read_text().splitlines()


def test_names_follow_the_conventions() -> None:
    for metric in METRICS.values():
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.meaning.endswith("."), metric.name


def test_the_page_is_up_to_date() -> None:
    assert DOCS.read_text() == render_docs(), "docs/metrics.md is out of date; run: make docs"
