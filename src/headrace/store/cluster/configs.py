"""Configs set at run time: of one broker, of all brokers, of a group.

They are few and every node needs them, so each node caches all of them (`shared_hash.py`). Which configs exist and what
they mean is up to the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from headrace.clock import Clock
from headrace.store.cluster.shared_hash import SharedHash
from headrace.store.keys import Keys
from headrace.store.redis.link import Argument
from headrace.store.redis.topology import Topology

log = logging.getLogger(__name__)

_GROUP = "group:"


def of_broker(node_id: str) -> str:
    """Where a broker's configs are; those of all brokers have no id."""
    return f"broker:{node_id}"


def of_group(group_id: str) -> str:
    return f"{_GROUP}{group_id}"


class Configs(SharedHash):
    """This node's copy, and the way to change it."""

    def __init__(self, topology: Topology, keys: Keys, clock: Clock) -> None:
        super().__init__(topology, keys.configs, clock)
        self.on_change: Callable[[], None] | None = None
        self._by_resource: dict[str, dict[str, str]] = {}

    def get(self, resource: str) -> Mapping[str, str]:
        """The configs set for a resource."""
        return self._by_resource.get(resource, {})

    def groups(self) -> list[str]:
        """The groups with configs."""
        return [resource.removeprefix(_GROUP) for resource in self._by_resource if resource.startswith(_GROUP)]

    async def replace(self, resource: str, configs: Mapping[str, str]) -> bool:
        """Writes configs over those that `get` gave; false if another node was faster."""
        return await self.change(resource, msgspec.json.encode(configs) if configs else None)

    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        found = {name: {} if row is None else _read(row) for name, row in changed.items()}
        kept = {name: configs for name, configs in self._by_resource.items() if name not in found}
        self._by_resource = kept | {name: configs for name, configs in found.items() if configs}
        if changed and self.on_change is not None:
            self.on_change()

    async def _write_back(self, copy: list[Argument]) -> bool:
        written = await super()._write_back(copy)
        if written:
            log.warning("the store had lost config changes; they were written again")
        return written


def _read(row: bytes) -> dict[str, str]:
    return msgspec.json.decode(row, type=dict[str, str])
