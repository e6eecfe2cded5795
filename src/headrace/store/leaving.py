"""Leaving partitions in good order, so that the next leader starts from what is stored.

A partition that cannot be closed keeps no other from it, nor the node from leaving: who takes it up reads its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from headrace.store.partition import origin
from headrace.store.partition.base import Partition
from headrace.store.redis.errors import LeftToLeader, PartitionGone, StoreError

log = logging.getLogger(__name__)

_AT_ONCE = 64
_PATIENCE_S = 1.0
"""For the rest, the next leader reads the store again."""


async def leave_led(partitions: Iterable[Partition]) -> None:
    """Leaves those that this node leads, as far as it can in a moment: others wait for them."""
    await leave_all([one for one in partitions if not one.is_gone and origin.leads(one)], _PATIENCE_S)


async def leave_again(partitions: Iterable[Partition]) -> None:
    """Leaves what this node took up once more after it had left: the others, to which it went, were leaving too.

    Clients go to whoever still answers. Without this all logs looked damaged after all nodes were stopped at once.
    """
    await leave_led(one for one in partitions if origin.has_taken_up(one))


async def leave_all(partitions: list[Partition], patience_s: float) -> None:
    """Leaves as many as it can in this time, some at once: the loop, and the clock, have to go on meanwhile."""
    closed = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            for at in range(0, len(partitions), _AT_ONCE):
                closed += sum(await asyncio.gather(*map(leave, partitions[at : at + _AT_ONCE])))
    if closed < len(partitions):
        log.warning("not all partitions were closed cleanly", extra={"partitions": len(partitions) - closed})


async def leave(partition: Partition) -> bool:
    """Whether it is closed cleanly, or not ours to close."""
    try:
        await partition.writer.drain()
        await partition.confirm()  # what a store that went back in time lost is in our cache alone
        await partition.save_producers()
        await partition.copies.save()
        await partition.writer.drain()  # what came meanwhile
        await origin.leave(partition)
    except StoreError as error:
        return isinstance(error, PartitionGone | LeftToLeader)
    return True
