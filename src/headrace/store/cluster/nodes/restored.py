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
        return self._is_all() and not self.awaited(seen)

    def awaited(self, seen: Iterable[SeenLease]) -> list[int]:
        """Nodes that were awake and may have something to restore."""
        return [row.node.id for row in self.behind(one.row for one in seen if one.was_awake)]

    def behind(self, rows: Iterable[Registration]) -> list[Registration]:
        """Those whose nodes restored all on other servers, or on earlier runs of these."""
        servers = self.servers()
        return [row for row in rows if servers and row.restored_on not in ("", servers)]

    def _is_all(self) -> bool:
        return all(check() for check in self.checks)
