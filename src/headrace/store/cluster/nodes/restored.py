"""What nodes have restored since another server has the leases: each says in its row on which one it has.

A node that was away waits for those that were awake: what only they have is on the server again by then. Rows are
written for this only while a node waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.store.cluster.nodes.leases import SeenLease


class Restored:
    """What this node has restored."""

    def __init__(self) -> None:
        self.checks: list[Callable[[], bool]] = []
        """Whether partitions, groups and transactional ids were looked at on the servers that answer now."""
        self.on = ""
        """The server on which all was last looked at, and which was told."""

    def is_news(self, seen: Iterable[SeenLease], server: str) -> bool:
        """Whether all is restored, a node waits for that, and it was not told on this server before."""
        is_awaited = any(one.is_held and one.row.state == "starting" for one in seen)
        return is_awaited and self.on != server and self._is_all()

    def by_all(self, seen: Iterable[SeenLease], server: str) -> bool:
        """Whether this node has nothing left to look at, and all that were awake say the same."""
        awake = (one.row for one in seen if one.was_awake)
        return self._is_all() and all(row.restored_on == server for row in awake)

    def _is_all(self) -> bool:
        return all(check() for check in self.checks)
