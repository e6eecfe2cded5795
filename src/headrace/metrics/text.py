"""Samples as the text that Prometheus reads: its own (version 0.0.4) or OpenMetrics 1.0.0.

A page may be large, so it is made piece by piece: whoever writes it can let others have their turn in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headrace.metrics.formats import TextFormat
from headrace.metrics.histogram import Exemplar, Histogram
from headrace.metrics.table import METRICS, Metric, MetricKind

END_OF_OPENMETRICS: Final = "# EOF\n"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One number, or one histogram, with the values of its metric's labels in their order."""

    name: str
    labels: tuple[str, ...]
    value: float | Histogram


def render(samples: Iterable[Sample], form: TextFormat = TextFormat.PROMETHEUS, **common: str) -> Iterator[str]:
    """Lines of text; all samples carry the common labels. Samples of one metric have to follow each other."""
    is_open = form is TextFormat.OPENMETRICS
    before = ""
    for sample in samples:
        metric = METRICS[sample.name]
        if sample.name != before:
            before = sample.name
            family = _family(metric) if is_open else metric.name
            yield f"# HELP {family} {metric.meaning}\n# TYPE {family} {metric.kind}\n"
        labels = {**common, **dict(zip(metric.labels, sample.labels, strict=True))}
        if isinstance(sample.value, Histogram):
            assert metric.kind is MetricKind.HISTOGRAM
            exemplars = sample.value.exemplars if is_open else {}
            for bound, count in sample.value.cumulated():
                yield _line(f"{metric.name}_bucket", {**labels, "le": bound}, count, exemplars.get(bound))
            yield _line(f"{metric.name}_sum", labels, sample.value.total)
            yield _line(f"{metric.name}_count", labels, sample.value.count)
        else:
            yield _line(metric.name, labels, sample.value)
    if is_open:
        yield END_OF_OPENMETRICS


def _family(metric: Metric) -> str:
    """OpenMetrics names a counter without the suffix of its samples."""
    return metric.name.removesuffix("_total") if metric.kind is MetricKind.COUNTER else metric.name


def _line(name: str, labels: dict[str, str], value: float, exemplar: Exemplar | None = None) -> str:
    shown = _labels(labels) if labels else ""
    if exemplar is None:
        return f"{name}{shown} {value!r}\n"
    seen = f"{_labels({'trace_id': exemplar.trace_id})} {exemplar.value!r} {exemplar.wall_s!r}"
    return f"{name}{shown} {value!r} # {seen}\n"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items()) + "}"
