"""Watches the event loop: every iteration over 100 ms is counted, and logged with the running code.

A timer on the loop records when it runs; a thread checks whether the timer is overdue, and if so, what the loop's
thread is doing. Each wakes up 20 times a second while clients ask for something, and once a second while none does:
then nobody is held up, and 40 wake-ups would be most of what an idle broker does (4.5 of 5.7 ms CPU a second).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType
from typing import Final

from headrace.metrics.histogram import Histogram
from headrace.ticks import until_tick

log = logging.getLogger(__name__)

_TICK_S: Final = 0.05
_LONG_S: Final = 0.1
_LOOK_AFTER_S: Final = 0.05
_RESTING_TICK_S: Final = 1.0
_TICKS_UNTIL_REST: Final = 10
_PACKAGE: Final = "headrace."
_LOOPS: Final = ("asyncio.base_events", "asyncio.runners", "uvloop")
_SHOWN: Final = 12
_PAUSES_TOLD_EVERY_S: Final = 10.0
"""A busy machine pauses a node many times a second."""


class Watchdog:
    """Watches the running loop between `start` and `stop`."""

    def __init__(self) -> None:
        self.long_turns = 0
        """Turns over 100 ms that the broker's own work took."""
        self.pauses = 0
        """Turns as long in which it mostly did not run: a busy machine, a stopped process, a call that blocks."""
        self._pauses_told = 0
        self._pauses_told_at_s = -_PAUSES_TOLD_EVERY_S
        self.delays = Histogram()
        """How late the timer was, each time."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread_id = 0
        self._due_s = 0.0
        self._cpu_s = 0.0
        self._running = ""
        self._is_stopped = False
        self._stirred = threading.Event()
        """Ends the thread's longer sleep."""
        self.is_resting = False
        """Whether no client has asked for anything for a while."""
        self.idle_ticks = 0
        """Since a client last sent something."""

    def start(self) -> None:
        """Watches the loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._wait()
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Ends both timer and thread."""
        self._is_stopped = True
        self._stirred.set()
        if self._timer is not None:
            self._timer.cancel()

    def stir(self) -> None:
        """A client sent something: who comes next must not wait for it."""
        self.idle_ticks = 0
        if self.is_resting:
            self.is_resting = False
            if self._timer is not None:
                self._timer.cancel()
                self._wait()
            self._stirred.set()

    def _wait(self) -> None:
        assert self._loop is not None
        tick_s = until_tick(_RESTING_TICK_S) if self.is_resting else _TICK_S
        self._running, self._cpu_s = "", time.process_time()
        self._due_s = time.monotonic() + tick_s
        self._timer = self._loop.call_later(tick_s, self._tick)

    def _tick(self) -> None:
        late_s = time.monotonic() - self._due_s
        self.delays.observe(max(late_s, 0.0))
        if late_s > _LONG_S:
            self._tell(late_s, time.process_time() - self._cpu_s)
        self.idle_ticks += 1
        if self.idle_ticks >= _TICKS_UNTIL_REST and not self.is_resting:
            self._stirred.clear()
            self.is_resting = True
        self._wait()

    def _tell(self, late_s: float, cpu_s: float) -> None:
        extra = {"held_ms": round(late_s * 1000), "cpu_ms": round(cpu_s * 1000), "running": self._running}
        if cpu_s > late_s / 2:
            self.long_turns += 1
            log.warning("the event loop was blocked", extra=extra)
        else:
            self.pauses += 1
            now_s = time.monotonic()
            if now_s - self._pauses_told_at_s < _PAUSES_TOLD_EVERY_S:
                return
            extra |= {"times": self.pauses - self._pauses_told}
            self._pauses_told, self._pauses_told_at_s = self.pauses, now_s
            log.info("the event loop was not scheduled: the machine is busy, or the process was stopped", extra=extra)

    def _look(self) -> None:
        while not self._is_stopped:
            if self.is_resting:
                self._stirred.wait(_RESTING_TICK_S)
            else:
                time.sleep(_TICK_S)
            if time.monotonic() - self._due_s > _LOOK_AFTER_S and not self._running:
                self._running = _calls(sys._current_frames().get(self._thread_id))


def _calls(frame: FrameType | None) -> str:
    """The functions of this package on the stack, outermost first."""
    calls: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in _LOOPS:
            break  # beyond it is whoever started the loop
        if module.startswith(_PACKAGE):
            calls.append(f"{module.removeprefix(_PACKAGE)}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(calls[:_SHOWN]))
