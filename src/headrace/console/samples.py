"""The nodes' metrics, parsed from Prometheus text: current values and recent history for the pages.

Only metrics that the pages use are kept, so that a large exposition costs little. History is a ring of bounded length
for a bounded number of series.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

Labels = tuple[tuple[str, str], ...]

POINTS_MAX: Final = 360
SERIES_MAX: Final = 4_000
_LABEL = re.compile(r'([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"')
_USED: Final = (
    "headrace_build_info",
    "headrace_connections{",
    "headrace_event_loop_long_turns_total",
    "headrace_group_lag_records",
    "headrace_group_lag_seconds",
    "headrace_groups",
    "headrace_lease_valid",
    "headrace_partitions_led",
    "headrace_redis_",
    "headrace_request_errors_total",
    "headrace_request_failures_total",
    "headrace_requests_total",
    "headrace_store_events_total",
    "headrace_tail_cache_",
    "headrace_tiered_",
    "headrace_topic_",
    "process_",
)


class SampleRead(NamedTuple):
    """One sample."""

    name: str
    labels: dict[str, str]
    value: float


def read_samples(page: bytes) -> Iterator[SampleRead]:
    """The samples that pages use, which include no histograms."""
    for line in page.decode(errors="replace").splitlines():
        if not line.startswith(_USED) or "_seconds_bucket{" in line:
            continue
        head, _, number = line.rpartition(" ")
        name, _, rest = head.partition("{")
        try:
            value = float(number)
        except ValueError:
            continue
        labels = {key: _unescaped(text) for key, text in _LABEL.findall(rest)}
        yield SampleRead(name, labels, value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


class Series:
    """History: (time, value) pairs by key."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, ...], deque[tuple[float, float]]] = {}

    def add(self, key: tuple[str, ...], now_s: float, value: float) -> None:
        points = self._points.get(key)
        if points is None:
            if len(self._points) >= SERIES_MAX:
                return
            points = self._points[key] = deque(maxlen=POINTS_MAX)
        if not points or now_s > points[-1][0]:
            points.append((now_s, value))

    def points(self, key: tuple[str, ...]) -> list[tuple[float, float]]:
        return list(self._points.get(key, ()))

    def rate(self, key: tuple[str, ...], window_s: float = 15.0) -> float | None:
        """A counter's recent rate per second; None if unknown."""
        points = self._points.get(key)
        if not points or len(points) < 2:
            return None
        newest = points[-1]
        before = next((point for point in points if newest[0] - point[0] <= window_s), points[-2])
        if before is newest:
            before = points[-2]
        return max(newest[1] - before[1], 0.0) / (newest[0] - before[0])

    def drop_older(self, then_s: float) -> None:
        """Drops series without newer values."""
        for key in [key for key, points in self._points.items() if points[-1][0] < then_s]:
            del self._points[key]
