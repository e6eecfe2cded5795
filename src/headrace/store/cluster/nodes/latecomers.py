"""Whom a node that starts waits for: others that have not been seen on these servers in their current runs.

Servers that were restarted, or have just taken over, may lack what other nodes acknowledged, and name older owners. A
node that starts beside them would take groups and transactional ids as they were then, and whoever knows better would
find another owner. So it first lets the others restore what they have. Those that are not there yet count as alive for
a lease, as they do to nodes that saw the outage; then they are dead, which is noted: who starts later waits no more.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_LEASES: Final = 10
"""How long others may take to restore what they have."""
_POLL_S: Final = 0.05
_LEASES_WHILE_SERVING: Final = 2
"""For so long after a change of servers a node that serves takes nothing that others may be about to restore."""


class Latecomers:
    """The others, while this node starts."""

    def __init__(self, store: Store) -> None:
        self._nodes, self._leases, self._link = store.nodes, store.leases, store.link
        self._now_s = store.clock.monotonic_s
        self._noted_in = store.keys.cluster, "heard"
        """The servers on which all that were known before were waited for."""
        self._servers, self._changed_s = "", 0.0

    async def expect(self) -> None:
        """Before this node takes its lease: those that may still come count as alive for a while."""
        restored, me = self._nodes.restored, self._nodes.me
        if await self._link.call("HGET", *self._noted_in) == restored.servers().encode():
            return
        others = (row for row in await self._leases.rows() if row.node.id != me.id and not row.node.shares_address(me))
        late = [row.node for row in restored.behind(row for row in others if row.state == "serving")]
        self._nodes.outages.wait_for(late, self._now_s())

    async def wait(self) -> None:
        """Before clients are answered: returns once nobody is left who may have something to restore."""
        nodes = self._nodes
        until_s = self._now_s() + self._leases.lease_ms / 1000 * _LEASES
        told: list[int] = []
        while (awaited := self._awaited()) and self._now_s() < until_s and not nodes.is_leaving:
            if told != (told := awaited):
                log.info("waiting for nodes that may have what the store lost", extra={"nodes": awaited})
            await asyncio.sleep(_POLL_S)
            await nodes.refresh()
        if not awaited:
            self._servers, self._changed_s = nodes.restored.servers(), -math.inf
            await self._link.call("HSET", *self._noted_in, nodes.restored.servers())

    @property
    def may_put_back(self) -> bool:
        """Whether other servers answer since a moment ago, and others may not have restored yet what they have."""
        servers = self._nodes.restored.servers()
        if servers != self._servers:
            self._servers, self._changed_s = servers, self._now_s()
        passed_s = self._now_s() - self._changed_s
        if passed_s >= self._leases.lease_ms / 1000 * _LEASES_WHILE_SERVING:
            return False
        return any(one != self._nodes.me.id for one in self._awaited())

    def _awaited(self) -> list[int]:
        nodes = self._nodes
        held = {one.row.node.id for one in nodes.seen if one.is_held}
        late = nodes.outages.survivors(nodes.seen, self._now_s()).keys() - held - {nodes.me.id}
        return sorted(late.union(nodes.restored.awaited(nodes.seen)))
