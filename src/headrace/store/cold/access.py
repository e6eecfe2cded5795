"""Between the store and a cold log: a timeout on every call, and the answers of a broker without a lake.

A table may be slow or unreachable. Callers get `ColdAway` in time; unexpected failures of a reader become `ColdAway`
too and are logged, so that consumers retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from headrace.cold_log import ColdAway, ColdBatches, ColdLog, ColdPartition, ColdTable, Held
from headrace.store.shared_work import retrieve

log = logging.getLogger(__name__)

T = TypeVar("T")

_START_S = 25.0
_NO_LAKE = "this broker was started without --lake"


class NoLake:
    """The cold log of a broker without a lake: records that left Redis cannot be read."""

    async def check(self) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    def reason(self, partition: ColdPartition) -> str | None:
        return _NO_LAKE

    async def held(self, partition: ColdPartition, *, fresh: bool = False) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    async def read(self, partition: ColdPartition, offset: int, stop: int, max_bytes: int) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    async def find_time(self, partition: ColdPartition, timestamp: int, first: int, stop: int) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    async def find_newest(self, partition: ColdPartition, first: int, stop: int) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    async def retained_start(
        self, partition: ColdPartition, first: int, stop: int, oldest_ms: int | None, most_bytes: int | None
    ) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    async def describe(self, partition: ColdPartition) -> NoReturn:
        raise ColdAway(_NO_LAKE)

    async def close(self) -> None:
        return


class InTime:
    """A cold log that answers, or raises `ColdAway`, within a time."""

    def __init__(self, cold: ColdLog, timeout_ms: int) -> None:
        self._cold = cold
        self._timeout_s = timeout_ms / 1000

    async def check(self) -> None:
        """Waits longer than others: it may be the first question, for which the reader is started."""
        await self._bounded(self._cold.check(), max(self._timeout_s, _START_S))

    def reason(self, partition: ColdPartition) -> str | None:
        return self._cold.reason(partition)

    async def held(self, partition: ColdPartition, *, fresh: bool = False) -> Held | None:
        return await self._bounded(self._cold.held(partition, fresh=fresh))

    async def read(self, partition: ColdPartition, offset: int, stop: int, max_bytes: int) -> ColdBatches:
        return await self._bounded(self._cold.read(partition, offset, stop, max_bytes))

    async def find_time(
        self, partition: ColdPartition, timestamp: int, first: int, stop: int
    ) -> tuple[int, int] | None:
        return await self._bounded(self._cold.find_time(partition, timestamp, first, stop))

    async def find_newest(self, partition: ColdPartition, first: int, stop: int) -> tuple[int, int] | None:
        return await self._bounded(self._cold.find_newest(partition, first, stop))

    async def retained_start(
        self, partition: ColdPartition, first: int, stop: int, oldest_ms: int | None, most_bytes: int | None
    ) -> int:
        return await self._bounded(self._cold.retained_start(partition, first, stop, oldest_ms, most_bytes))

    async def describe(self, partition: ColdPartition) -> ColdTable:
        return await self._bounded(self._cold.describe(partition))

    async def close(self) -> None:
        await self._cold.close()

    async def _bounded(self, answer: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Waits no longer than the time; the question goes on, so that the next one finds a reader that is ready."""
        task = asyncio.ensure_future(answer)
        task.add_done_callback(retrieve)
        timeout_s = timeout_s or self._timeout_s
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            raise ColdAway(f"the lake did not answer within {timeout_s:g} s")
        try:
            return task.result()
        except ColdAway:
            raise
        except Exception as error:
            log.exception("the lake reader failed")
            raise ColdAway(f"the lake reader failed: {error}") from error
