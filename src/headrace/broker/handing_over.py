"""Orderly shutdown with other nodes running: they own partitions and groups before clients are told so.

New requests are held meanwhile: queued batches are appended, each partition is closed with a snapshot of its producers,
the lease is released, and the other nodes say that they know. Held requests are then answered from the new state:
another node leads (6), another one coordinates (16). One metadata refresh, at any node, leads clients there: one that
leads back here costs a client seconds, if it goes on trying to connect to a node that is gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.network.server import Server

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 2.0
"""Less than clients wait for an answer."""
_FAREWELL_S: Final = 0.25
"""For clients that ask the node that they know where to go."""


async def hand_over(broker: Broker, server: Server) -> None:
    """Returns once other nodes have taken over, and clients had a moment to notice."""
    store = broker.store
    if len(store.nodes.live) == 1:
        await broker.leave_lost(_PATIENCE_S)
        return
    log.info("handing over to other nodes", extra={"nodes": len(store.nodes.live) - 1})
    server.hold()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await store.hand_over()
    except (StoreError, TimeoutError) as error:
        log.warning("handing over failed", extra={"why": str(error) or "the store is too slow"})
    store.nodes.step_down()
    broker.let_go_what_moved()
    server.stop_accepting()
    server.go_on()
    await asyncio.gather(store.leave_unused(), broker.leave_lost(_PATIENCE_S), asyncio.sleep(_FAREWELL_S))
