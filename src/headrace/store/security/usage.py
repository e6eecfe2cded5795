"""Bytes stored by organisations: each node reports its partitions, and all nodes add them up.

A hash next to the organisations, written and read every few seconds, and only for organisations with such a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.store.store import Store


class Usage:
    """Stored bytes, as of a few seconds ago."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = store.keys.usage
        self.full: frozenset[str] = frozenset()
        """The organisations that have reached their limit."""

    async def tell(self, led_bytes: dict[str, int]) -> None:
        """Stores this node's bytes by organisation, and reads the other nodes'."""
        link = self._store.topology.slot_of(self._key).link
        me = self._store.nodes.me.id
        for organisation, size in led_bytes.items():
            await link.call("HSET", self._key, f"{organisation}/{me}", size)
        reply = await link.call("HGETALL", self._key) if led_bytes else []
        live = {str(node.id) for node in self._store.nodes.live}
        totals: dict[str, int] = {}
        for field, size in zip(reply[::2], reply[1::2], strict=True):
            organisation, _, node = field.decode().partition("/")
            if node in live:
                totals[organisation] = totals.get(organisation, 0) + int(size)
        limits = self._store.tenants.limits
        self.full = frozenset(
            name for name, total in totals.items() if (most := limits(name).bytes_stored) is not None and total >= most
        )
