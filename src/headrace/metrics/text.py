"""Samples as the text that Prometheus reads (version 0.0.4).

A page may be large, so it is made piece by piece: whoever writes it can let others have their turn in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headrace.metrics.histogram import Histogram
from headrace.metrics.table import METRICS, MetricKind

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One number, or one histogram, with the values of its metric's labels in their order."""

    name: str
    labels: tuple[str, ...]
    value: float | Histogram


def render(samples: Iterable[Sample], **common: str) -> Iterator[str]:
    """Lines of text; all samples carry the common labels. Samples of one metric have to follow each other."""
    before = ""
    for sample in samples:
        metric = METRICS[sample.name]
        if sample.name != before:
            before = sample.name
            yield f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"
        labels = {**common, **dict(zip(metric.labels, sample.labels, strict=True))}
        if isinstance(sample.value, Histogram):
            assert metric.kind is MetricKind.HISTOGRAM
            for bound, count in sample.value.cumulated():
                yield _line(f"{metric.name}_bucket", {**labels, "le": bound}, count)
            yield _line(f"{metric.name}_sum", labels, sample.value.total)
            yield _line(f"{metric.name}_count", labels, sample.value.count)
        else:
            yield _line(metric.name, labels, sample.value)


def _line(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value!r}\n" if shown else f"{name} {value!r}\n"
