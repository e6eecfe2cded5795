"""What nodes have restored since other servers answer: each says in its row on which ones it has.

A node that was away, or that starts, waits for those that were awake: by then the store has again what only they had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.store.cluster.nodes.endpoints import Registration
from headrace.store.cluster.nodes.leases import SeenLease


class Restored:
    """What this node has restored."""

    def __init__(self, servers: Callable[[], str]) -> None:
        self.servers = servers
        """The servers that answer now, in their runs; empty while one is not known."""
        self.checks: list[Callable[[], bool]] = []
        """Whether partitions, groups and transactional ids were looked at on the servers that answer now."""
        self.on = ""
        """The servers on which all was last looked at, and which were told."""

    @property
    def news(self) -> str:
        """The servers, if all is restored there and they were not told; otherwise nothing."""
        servers = self.servers()
        return servers if servers != self.on and self._is_all() else ""

    def by_all(self, seen: Iterable[SeenLease]) -> bool:
        """Whether this node has nothing left to look at, and all that were awake say the same."""
        return self._is_all() and not any(self.is_awaited(one) for one in seen)

    def is_awaited(self, one: SeenLease) -> bool:
        """Whether a node that was awake may have something to restore."""
        return one.was_awake and self.is_behind(one.row)

    def is_behind(self, row: Registration) -> bool:
        """Whether a node restored all on other servers, or on earlier runs of these."""
        servers = self.servers()
        return bool(servers and row.restored_on) and row.restored_on != servers

    def _is_all(self) -> bool:
        return all(check() for check in self.checks)
