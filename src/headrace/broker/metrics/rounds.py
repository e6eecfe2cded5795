"""Samples that have to be read from the store or the lake: counted in the background, a round every few seconds.

A scrape shows the last round, so it never waits for Redis. What cannot be read keeps its last samples.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from headrace.broker.metrics.archive import archive_samples
from headrace.broker.metrics.lag import GroupLag
from headrace.broker.metrics.transactions import transaction_samples
from headrace.metrics.text import Sample
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[list[Sample]]]


class Rounds:
    """The last round over this node's groups and partitions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: dict[str, Look] = {
            "group lag": GroupLag(broker).look,
            "transactions": lambda: transaction_samples(broker),
            "archive lag": lambda: archive_samples(broker),
        }
        self._samples: dict[str, list[Sample]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="metrics")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def samples(self) -> Iterator[Sample]:
        for name in self._looks:
            yield from self._samples.get(name, ())

    async def _run(self) -> None:
        while True:
            for name, look in self._looks.items():
                try:
                    self._samples[name] = await look()
                except KafkaError as error:
                    log.debug(f"{name}: not known", extra={"why": str(error)})
                except Exception:
                    log.exception(f"{name}: could not be counted")
            await asyncio.sleep(self._broker.options.metrics_interval_ms / 1000)
