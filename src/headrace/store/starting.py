"""Patience at the start: a store that is slow for a moment does not keep a node from starting.

Later a command that fails is tried again by whoever needs it. At the start there is nobody yet, and a process that ends
because a busy machine took a moment to answer helps no one. So each step of the start can be done twice, and is done
again while the store comes back soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.store.redis.errors import OutcomeUnknown, StoreAway

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 5.0
"""As long as other connections wait for an answer by default."""
_PAUSE_S: Final = 0.05


async def patiently(*steps: Callable[[], Awaitable[object]]) -> None:
    """Does one step after the other; raises what stands in the way if it does not pass."""
    now_s = asyncio.get_running_loop().time
    for step in steps:
        deadline = now_s() + _PATIENCE_S
        while True:
            try:
                await step()
                break
            except (StoreAway, OutcomeUnknown) as error:
                if now_s() >= deadline:
                    raise
                log.info("the store is slow; trying again", extra={"why": str(error)})
            await asyncio.sleep(_PAUSE_S)
