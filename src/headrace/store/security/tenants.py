"""The organisations: rows that every node caches, and one object for each on every node.

A row holds an organisation's limits. `default` always exists and may have a row, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headrace.organisations import DEFAULT_ORGANISATION
from headrace.store.security.rows import SecurityRows

if TYPE_CHECKING:
    from headrace.store.store import Store

_ROW = "limits"


class TenantLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of an organisation; None: only the settings' limits. Rates are per node."""

    topics: int | None = None
    partitions: int | None = None
    bytes_stored: int | None = None
    connections: int | None = None
    producer_byte_rate: int | None = None
    consumer_byte_rate: int | None = None


NO_LIMITS = TenantLimits()
_decode = msgspec.json.Decoder(TenantLimits).decode


class Tenants:
    """This node's organisations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = SecurityRows(store.topology, store.keys.organisations, store.clock)
        self._limits: dict[str, TenantLimits] = {}
        self._seen_version = -1
        self._following = asyncio.Lock()
        """Two at a time would each make an object of a new organisation."""
        self.has_rates = False
        """Whether any organisation has a limit of bytes a second."""
        self.on_rates: Callable[[], None] = lambda: None
        """Told that this may have changed."""

    def limits(self, organisation: str) -> TenantLimits:
        return self._limits.get(organisation, NO_LIMITS)

    @property
    def names(self) -> list[str]:
        return sorted({DEFAULT_ORGANISATION, *self._limits})

    async def put(self, name: str, limits: TenantLimits) -> None:
        """Makes an organisation, or changes its limits; this node has it at once."""
        await self.rows.put(name, _ROW, msgspec.json.encode(limits))
        await self.follow()

    async def drop(self, name: str) -> None:
        await self.rows.drop(name, _ROW)
        await self.follow()

    async def follow(self) -> None:
        """Takes in rows that changed: organisations come, and go."""
        async with self._following:
            await self._follow()

    async def _follow(self) -> None:
        if self._seen_version == self.rows.version:
            return
        version = self.rows.version
        self._limits = {field.partition("/")[0]: _decode(row) for field, row in self.rows.rows.items()}
        self.has_rates = any(
            one.producer_byte_rate is not None or one.consumer_byte_rate is not None for one in self._limits.values()
        )
        self.on_rates()
        store = self._store
        for name in self._limits.keys() - store.organisations.keys():
            await store.add_organisation(name)
        for name in store.organisations.keys() - {DEFAULT_ORGANISATION} - self._limits.keys():
            store.organisations.pop(name).close()
        self._seen_version = version
