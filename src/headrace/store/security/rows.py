"""Stored ACLs, quotas and organisations: rows that every node caches.

Their keys are outside those of any organisation, so that access to an organisation's topics in Redis does not include
them. A row's field begins with its organisation. What rows mean is up to the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from headrace.clock import Clock
from headrace.store.cluster.shared_hash import SharedHash
from headrace.store.redis.link import Argument
from headrace.store.redis.topology import Topology

log = logging.getLogger(__name__)

Changed = Callable[[Mapping[str, bytes | None]], None]


class SecurityRows(SharedHash):
    """This node's copy, and the way to change it."""

    def __init__(self, topology: Topology, key: str, clock: Clock) -> None:
        super().__init__(topology, key, clock)
        self.on_change: Changed | None = None
        """Told of the fields that are other than before, None for those that are gone."""

    def of(self, organisation: str) -> Iterator[tuple[str, bytes]]:
        """An organisation's rows, by their names in it."""
        start = f"{organisation}/"
        return ((field.removeprefix(start), row) for field, row in self.rows.items() if field.startswith(start))

    def get(self, organisation: str, name: str) -> bytes | None:
        return self.rows.get(f"{organisation}/{name}")

    async def put(self, organisation: str, name: str, row: bytes) -> bool:
        """Sets a row; false if it already had this value."""
        return await self._settle(f"{organisation}/{name}", row)

    async def drop(self, organisation: str, name: str) -> bool:
        """Removes a row; false if there was none."""
        return await self._settle(f"{organisation}/{name}", None)

    async def replace(self, organisation: str, name: str, row: bytes | None) -> bool:
        """Writes over the row that the copy has; false if another node was faster."""
        return await self.change(f"{organisation}/{name}", row)

    async def _settle(self, field: str, row: bytes | None) -> bool:
        while self.rows.get(field) != row:
            if await self.change(field, row):
                return True
        return False

    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        if changed and self.on_change is not None:
            self.on_change(changed)

    async def _write_back(self, copy: list[Argument]) -> bool:
        written = await super()._write_back(copy)
        if written:
            log.warning("the store had lost security changes; they were written again", extra={"key": self.key})
        return written
