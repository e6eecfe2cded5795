"""Keeps a node's lease in the background, and notes that the process runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from headrace.store.cluster.nodes.leases import Leases
from headrace.store.cluster.nodes.nodes import NodeIdTaken, Nodes
from headrace.store.lasting import Lasting
from headrace.store.redis.errors import OutcomeUnknown, StoreAway, StoreError

log = logging.getLogger(__name__)

_RENEWALS_IN_A_LEASE: Final = 4
"""One that is late must not cost the lease."""
_TICKS_IN_A_LEASE: Final = 12
_RETRY_S: Final = 0.05
"""After the connection of a renewal broke: there is less time left than usual."""


async def stay_awake(nodes: Nodes, leases: Leases) -> None:
    """Notes that the process runs, until it is cancelled."""
    while True:
        nodes.note_awake()
        await asyncio.sleep(leases.lease_ms / 1000 / _TICKS_IN_A_LEASE)


async def keep(nodes: Nodes, leases: Leases) -> None:
    """Renews the lease, well within its time, until it is cancelled: slow answers do not make it rarer."""
    without_id = Lasting(log, "this node has lost its id", "this node has its id again", logging.ERROR)
    now_s = asyncio.get_running_loop().time
    every_s = pause_s = leases.lease_ms / 1000 / _RENEWALS_IN_A_LEASE
    while True:
        await asyncio.sleep(pause_s)
        began, pause_s = now_s(), every_s
        try:
            await nodes.renew()
            nodes.without_lease.over()
            without_id.over()
            pause_s = max(every_s - (now_s() - began), min(every_s, _RETRY_S))
        except NodeIdTaken as error:
            without_id.met(why=str(error))
        except (StoreAway, OutcomeUnknown) as error:
            log.debug("the lease was not renewed", extra={"why": str(error)})
            pause_s = _RETRY_S  # a node that starts may be quicker to claim its lease, and take what we have to restore
            with contextlib.suppress(StoreAway):
                await leases.wait_up(every_s)
        except StoreError as error:
            log.debug("the lease was not renewed", extra={"why": str(error)})
        except Exception:
            log.exception("renewing the lease failed")
