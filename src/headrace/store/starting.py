"""Retries at start-up: a store that is slow for a moment does not keep a node from starting.

Later, whoever sent a failed command retries it. At start-up there is nobody to do so, and a node that exits because a
busy machine was slow helps no one. So every start-up step can be repeated, and is repeated while the store is expected
back soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.store.redis.errors import OutcomeUnknown, RedisError, StoreAway, StoreError

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 5.0
"""As long as other connections wait for an answer by default."""
_PAUSE_S: Final = 0.05


async def patiently(
    *steps: Callable[[], Awaitable[object]], may_pass: Callable[[StoreError], bool] | None = None
) -> None:
    """Runs the steps in order; raises the obstacle if it does not go away, or if it may not."""
    may_pass = may_pass or _passes
    now_s = asyncio.get_running_loop().time
    for step in steps:
        deadline, logged = now_s() + _PATIENCE_S, ""
        while True:
            try:
                await step()
                break
            except StoreError as error:
                if not may_pass(error) or now_s() >= deadline:
                    raise
                if logged != (logged := str(error)):
                    log.info("the store is slow; retrying", extra={"why": logged})
            await asyncio.sleep(_PAUSE_S)


def _passes(error: StoreError) -> bool:
    if isinstance(error, RedisError):
        return error.passes_by_itself
    return isinstance(error, StoreAway | OutcomeUnknown)


def is_silence(error: StoreError) -> bool:
    """Whether nobody said what is wrong, or what to do."""
    return isinstance(error, StoreAway) and not error.advice
