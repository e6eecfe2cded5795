"""Callbacks for the end of the current event loop iteration, all run by one wake-up.

Several batches for one partition arrive in one turn, and one turn brings the store's answers for several: what is sent
at the end of the turn takes all of it along. One call for everybody who is due costs a fraction of one each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

_FAILED = "work at the end of a turn failed"


class EndOfTurn:
    """Runs the callbacks added so far, once each, in order."""

    __slots__ = ("_due", "_last", "_loop")

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []
        self._last: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, callback: Callable[[], None]) -> None:
        if not self._due:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()  # once: it asks the kernel for the process's id
            self._loop.call_soon(self._run)
        self._due.append(callback)

    def add_last(self, callback: Callable[[], None]) -> None:
        """Called by one of the callbacks: runs behind all of them."""
        self._last.append(callback)

    def _run(self) -> None:
        due, self._due = self._due, []
        for callback in due:
            try:
                callback()
            except Exception:
                log.exception(_FAILED)
        while self._last:
            try:
                self._last.pop()()
            except Exception:
                log.exception(_FAILED)
