"""The end of a wait, for waits that nearly always end sooner: one timer for all of a connection's, one after the other.

A consumer at the tail waits for each append, and a timer of the event loop for each wait would be made and cancelled in
vain. So a timer that was set for an earlier wait stays: when it goes off too early, it is set again for the present
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LEAST_S = 0.001
"""The event loop rounds to milliseconds: less than one may not advance its clock."""


class WaitTimer:
    """Calls back at the time of the present wait, if it is not cleared before."""

    __slots__ = ("_callback", "_due", "_fires_at", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self._due = 0.0
        self._callback: Callable[[], None] | None = None

    def set(self, due: float, callback: Callable[[], None]) -> None:
        """In place of the wait before."""
        self._due, self._callback = due, callback
        if self._timer is not None and due < self._fires_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._arm()

    def clear(self) -> None:
        """The wait is over."""
        self._callback = None

    def close(self) -> None:
        """There will be no more."""
        self._callback = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._fires_at = self._due
        self._timer = self._loop.call_later(max(self._due - self._loop.time(), _LEAST_S), self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._callback is None:
            return
        if self._loop.time() < self._due:
            self._arm()
            return
        callback, self._callback = self._callback, None
        callback()
