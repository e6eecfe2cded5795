"""Ticks that light background work of one process shares.

An idle broker has a dozen small things to do once or twice a second. What each does is little; waking up for each alone
is most of the cost. So they sleep until ticks of one clock, and one wake-up serves all.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from typing import Final

_OFFSET_S: Final = secrets.randbelow(1000) / 1000
"""Where this process has its ticks: several nodes on a machine should not all wake up at once."""


def until_tick(every_s: float) -> float:
    """Seconds until a tick, half of the interval at least: work that takes long still gets its rest."""
    at_s = time.monotonic() - _OFFSET_S
    return math.ceil(at_s / every_s + 0.5) * every_s - at_s


async def tick(every_s: float) -> None:
    """Sleeps until a tick; on average as long as the interval, never over one and a half of it."""
    await asyncio.sleep(until_tick(every_s))
