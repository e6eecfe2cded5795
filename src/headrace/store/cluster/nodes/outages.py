"""Which nodes count as alive although their leases are gone: an outage of the store may have cost them.

After an outage that some leases did not survive, or if another server answers, the first node back would take over
everything, without the records that only other nodes' caches still have. So nodes that were alive before count as alive
for one more lease, unless they shut down or a neighbour found them dead. On another server only the row of the same
process tells that: an older store has the rows of earlier processes, which may have died, or none yet.

Each lease runs out by itself. An outage of three quarters of a lease is enough for the first, while others are still
held: so what counts is how long the store was silent, not whether our own lease survived.
"""

from __future__ import annotations

from typing import Final

from headrace.store.cluster.nodes.endpoints import Node
from headrace.store.cluster.nodes.leases import SeenLease

_SILENCE_OF_A_LEASE: Final = 1 / 3
"""Renewals are sent every quarter of a lease: none can have run out after a shorter silence."""


class Outages:
    """When the store was silent, and who was alive before."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._silent_since: float | None = None
        """When the first renewal began that is not done yet: the look behind it has no answer, either."""
        self._known: dict[int, Node] = {}
        self._known_until = 0.0
        self._rows_lost_until = 0.0
        """The store lost the rows of the nodes, too: who has none has not left."""
        self._emptied_until = 0.0
        self._processes: dict[int, str] = {}
        """The process that last held the lease of a node."""
        self._unseen: set[int] = set()
        """Nodes that have not held a lease on the servers that answer now, and so cannot have left there."""

    @property
    def is_silent(self) -> bool:
        """Whether a renewal is not done yet."""
        return self._silent_since is not None

    def ask(self, now_s: float) -> None:
        """A renewal begins."""
        if self._silent_since is None:
            self._silent_since = now_s

    def was_long(self, now_s: float) -> bool:
        """A renewal is answered: whether leases may have run out before that."""
        return self._silent_since is not None and now_s - self._silent_since >= self._lease_s * _SILENCE_OF_A_LEASE

    def end(self) -> None:
        """A renewal is done."""
        self._silent_since = None

    def wait_for(self, live: list[Node], now_s: float, *, is_elsewhere: bool = False) -> None:
        """Counts nodes as alive for one lease."""
        self._known = {node.id: node for node in live}
        self._known_until = now_s + self._lease_s
        if is_elsewhere:
            self._unseen = set(self._known)

    def look(self, seen: list[SeenLease]) -> None:
        """Notes whose process holds a lease."""
        self._processes |= {one.row.node.id: one.row.token for one in seen if one.is_held}
        self._unseen -= {one.row.node.id for one in seen if one.is_held}

    def lose_rows(self, now_s: float, *, are_all: bool) -> None:
        """Our own row was not there; `are_all` if it had been, and there is none of an earlier process, either."""
        self._rows_lost_until = now_s + self._lease_s
        if are_all:
            self._emptied_until = self._rows_lost_until

    def is_emptied(self, now_s: float) -> bool:
        """Whether the server of the leases has just lost everything: an older one would have a row of ours."""
        return now_s < self._emptied_until

    def survivors(self, seen: list[SeenLease], now_s: float) -> dict[int, Node]:
        """Nodes from before an outage that did not leave gracefully; all of them, if the store lost its rows."""
        if now_s >= self._known_until:
            return {}
        is_alive = {one.row.node.id: self._may_serve(one) for one in seen}
        are_rows_lost = now_s < self._rows_lost_until
        return {id: node for id, node in self._known.items() if is_alive.get(id, are_rows_lost or id in self._unseen)}

    def _may_serve(self, one: SeenLease) -> bool:
        """Whether a node was not found dead, and does not say itself that it is only starting."""
        is_earlier = one.row.node.id in self._unseen and one.row.token != self._processes.get(one.row.node.id)
        return (one.row.state != "gone" or is_earlier) and not (one.is_held and one.row.state == "starting")
