"""Bounds the cold reader's CPU to a share of one core while other processes wait for the same cores.

The rule: on a machine with idle cores a read is never held up, and on a busy one no read waits longer than a fixed time
for the share: the timeouts of consumers come first. The kernel counts how long our threads were ready to run and did
not (`schedstat`); where it does not, reads are never held up and only the priority is low.

Work comes in row groups of some ten milliseconds of CPU. What they used is paid back before the next begins; while the
machine is busy they are read one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable

BURST_S = 0.2
"""CPU that may be used at once after a pause: the first records of a consumer are not held up."""

LONGEST_WAIT_S = 1.0

_LOOK_EVERY_S = 0.05
_BUSY = 0.25
"""The cores are busy if our threads waited for them this part of the time that they ran."""

_OWN_THREADS = "/proc/self/task"


class CpuShare:
    """The share. `cpu_s`: CPU used by this process; `waited_s`: the time its threads waited for a core."""

    def __init__(
        self,
        percent: int,
        *,
        longest_wait_s: float = LONGEST_WAIT_S,
        clock: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
        waited_s: Callable[[], float] | None = None,
    ) -> None:
        self._share, self._longest_wait_s = percent / 100, longest_wait_s
        self._clock, self._cpu_s, self._waited_s = clock, cpu_s, waited_s or waited_for_cores_s
        self._looked_at_s, self._used_s, self._waiting_s = clock(), cpu_s(), self._waited_s()
        self._left_s = BURST_S
        self._is_busy = False
        self._one_at_a_time = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until the next piece of work may begin; it runs inside."""
        if not self._share:
            yield
            return
        holds = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._longest_wait_s):
                    holds = await self._one_at_a_time.acquire()
                    pause_s = self.pause_s()
                    while pause_s > 0:
                        await asyncio.sleep(pause_s)
                        pause_s = self.pause_s()
            if holds and not self._is_busy:
                self._one_at_a_time.release()
                holds = False
            yield
        finally:
            if holds:
                self._one_at_a_time.release()

    def pause_s(self) -> float:
        """How long the next piece of work has to wait."""
        now_s, used_s = self._clock(), self._cpu_s()
        passed_s = now_s - self._looked_at_s
        if passed_s >= _LOOK_EVERY_S:
            ran_s, waiting_s = used_s - self._used_s, self._waited_s()
            if ran_s > 0:
                self._is_busy = waiting_s - self._waiting_s > _BUSY * ran_s
            self._left_s = min(BURST_S, self._left_s + self._share * passed_s - ran_s)
            self._left_s = max(self._left_s, -BURST_S)
            self._looked_at_s, self._used_s, self._waiting_s = now_s, used_s, waiting_s
        if not self._is_busy or self._left_s >= 0:
            return 0.0
        return max(-self._left_s / self._share, _LOOK_EVERY_S)


def waited_for_cores_s() -> float:
    """How long the threads of this process were ready to run while others ran; 0 where the kernel does not count it."""
    total_ns = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(_OWN_THREADS):
            with contextlib.suppress(OSError), open(f"{_OWN_THREADS}/{thread}/schedstat", "rb") as file:
                total_ns += int(file.read().split()[1])
    return total_ns / 1e9
