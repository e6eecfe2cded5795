"""Work that several callers share: each may leave before it ends, and its failure answers those who stay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any


def retrieve(work: asyncio.Future[Any]) -> None:
    """Marks a failure as seen, so that asyncio does not report it when no caller is left."""
    if not work.cancelled():
        work.exception()


async def all_of(works: Iterable[Awaitable[object]]) -> None:
    """Returns once all have ended; the first failure is raised then, so it keeps none of the others back."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


class WorkInParts:
    """Work that is waited for in parts: what takes long is not begun anew by whoever has something to do in between."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._begin = begin
        self._name = name
        self._work: asyncio.Task[None] | None = None

    async def has_ended(self, within_s: float) -> bool:
        """Waits for a part; the work that ends raises its failure, and the next part begins it again."""
        if self._work is None:
            self._work = asyncio.create_task(self._begin(), name=self._name)
            self._work.add_done_callback(retrieve)
        work = self._work
        if not (await asyncio.wait([work], timeout=within_s))[0]:
            return False
        self._work = None
        work.result()
        return True

    def cancel(self) -> None:
        """Nobody waits any more."""
        if self._work is not None:
            self._work.cancel()
