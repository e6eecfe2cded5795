"""State of the console process: settings, visitors, and metrics of this machine's nodes."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus

from headrace.console.kept import KeptAnswers
from headrace.console.relay import ask_all
from headrace.console.samples import SampleRead, Series, read_samples
from headrace.console.settings import ConsoleSettings
from headrace.console.visitors import Visitors

_WATCHED_EVERY_S, _IDLE_EVERY_S = 2.0, 10.0
_FORGET_AFTER_S = 3600.0
_COUNTERS = {
    "headrace_topic_records_in_total": "records_in",
    "headrace_topic_bytes_in_total": "bytes_in",
    "headrace_topic_bytes_out_total": "bytes_out",
}


class ConsoleState:
    """Of one process."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.visitors = Visitors(settings)
        self.series = Series()
        self.kept = KeptAnswers()
        self.nodes: list[list[SampleRead]] = [[] for _ in settings.node_sockets]
        """The latest samples of each node; empty if it did not answer."""
        self.health: list[bool] = [False for _ in settings.node_sockets]
        self.watchers = 0

    async def sample(self) -> None:
        """Polls the nodes' metrics while the console runs, more often while somebody watches."""
        if not self.settings.node_sockets:
            return
        while True:
            await self.sample_once()
            await asyncio.sleep(_WATCHED_EVERY_S if self.watchers else _IDLE_EVERY_S)

    async def sample_once(self) -> None:
        sockets = self.settings.node_sockets
        pages, ready = await asyncio.gather(ask_all(sockets, "/metrics"), ask_all(sockets, "/health/ready"))
        self.health = [answer.status == HTTPStatus.OK for answer in ready]
        self.nodes = await asyncio.to_thread(
            lambda: [list(read_samples(page.body)) if page.status == HTTPStatus.OK else [] for page in pages]
        )
        self._keep(time.time())

    def _keep(self, now_s: float) -> None:
        sums: dict[tuple[str, ...], float] = {}
        for readings in self.nodes:
            for reading in readings:
                labels = reading.labels
                if (what := _COUNTERS.get(reading.name)) is not None:
                    key: tuple[str, ...] = (what, labels["organisation"], labels["topic"])
                    sums[key] = sums.get(key, 0.0) + reading.value
                    total = what, labels["organisation"]
                    sums[total] = sums.get(total, 0.0) + reading.value
                elif reading.name == "headrace_requests_total":
                    key = ("requests",)
                    sums[key] = sums.get(key, 0.0) + reading.value
                elif reading.name == "headrace_group_lag_records":
                    key = ("lag", labels["organisation"], labels["group"], labels["topic"])
                    sums[key] = max(sums.get(key, 0.0), reading.value)
        for key, value in sums.items():
            self.series.add(key, now_s, value)
        self.series.drop_older(now_s - _FORGET_AFTER_S)

    def values(self, name: str, **labels: str) -> list[float]:
        """A metric's values on all nodes."""
        return [
            reading.value
            for readings in self.nodes
            for reading in readings
            if reading.name == name and all(reading.labels.get(key) == value for key, value in labels.items())
        ]

    def total(self, name: str, **labels: str) -> float | None:
        """The sum of a metric over the nodes; None if none has it."""
        return sum(found) if (found := self.values(name, **labels)) else None
