"""A hash in Redis that every node caches: topics, run-time configs, users, ACLs.

A version rises with each change. Checking for changes costs one HGET, or one script for all hashes of a slot; a change
costs its own write, and following other nodes costs reading what they changed. None of this grows with the size of the
hash.

The version shows the age of a cache even after a flush, since the first version is taken from the clock. So if a new
server has an older hash than ours, the store went back in time, and ours is written back.

Replies arrive in the order in which Redis executed the commands and are applied in that order, so a cache never goes
back.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headrace.clock import Clock
from headrace.store.confidence import Confidence, Level, View
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.link import Argument
from headrace.store.redis.topology import Slot, SlotPlace, Topology

VERSION = ":version"
"""A field that no row can be named like."""
_ASKED_AT_ONCE = 256
_SLOTS_AT_ONCE = 16

Item = TypeVar("Item")


class SharedHash(ABC):
    """This node's copy of a hash shared by all nodes, and how to change it."""

    def __init__(self, topology: Topology, key: str, clock: Clock) -> None:
        self.version = -1
        self.rows: dict[str, bytes] = {}
        """Field -> what is stored, to the byte: a change is compared with it."""
        self.slot = slot = topology.slot_of(key)
        self._copied = topology.copied
        self._link, self._scripts = slot.link, slot.scripts
        self.key = key
        self._clock = clock
        self._both_keys = [key, f"{key}:changes"]
        self.confidence = Confidence()

    @property
    def _view(self) -> View:
        """The version shows changes by others, so only another server puts a copy in doubt."""
        return View(self._link.timeline, 0)

    @property
    def is_sure(self) -> bool:
        """Whether it was read from the server that answers now."""
        return self.confidence.level(self._view) is Level.SURE

    async def load(self) -> None:
        """Reads everything; a store that went back in time first gets back what it lost."""
        look = self.confidence.begin(self._view)
        if self.confidence.level(look.view) is Level.ASTRAY and self.version > 0:
            await self._write_back([VERSION, self.version, *(part for row in self.rows.items() for part in row)])
        reply = await self._link.call("HGETALL", self.key)
        rows = {field.decode(): row for field, row in zip(reply[::2], reply[1::2], strict=True)}
        version = int(rows.pop(VERSION, 0))
        self._take_in(version, {**rows, **dict.fromkeys(self.rows.keys() - rows.keys())})
        self.confidence.end(look)

    async def settle(self) -> None:
        """Sees to it that the copy is right after another server answered."""
        if not self.is_sure:
            await self.load()

    async def refresh(self) -> bool:
        """Applies other nodes' changes; returns whether there were any."""
        return await self.follow_to(int(await self._link.call("HGET", self.key, VERSION) or 0))

    async def follow_to(self, version: int) -> bool:
        """Applies the changes up to a version that was just read from the store; returns whether there were any."""
        if version == self.version and self.is_sure:
            return False
        await self._catch_up()
        return True

    async def _catch_up(self) -> None:
        if not self.is_sure:
            await self.load()
            return
        reply = await self._scripts.run("changed_rows", self._both_keys, [VERSION, self.version])
        if reply is None or not self.is_sure:
            await self.load()
            return
        version, *changed = reply
        rows = {field.decode(): row for field, row in zip(changed[::2], changed[1::2], strict=True)}
        self._take_in(int(version), rows)

    async def check_copies(self) -> None:
        """NotEnoughReplicas if it is known beforehand that a change would be on too few servers."""
        await self._copied.check(self.slot.shard)

    async def change(self, field: str, new: bytes | None) -> bool:
        """Replaces the row that the copy has, None standing for none; false if another node was faster."""
        old = self.rows.get(field, b"")
        arguments: list[Argument] = [VERSION, self._clock.wall_ms(), field, old, new or b""]
        sent_to = self.slot.place
        version = await self._scripts.run("change_row", self._both_keys, arguments)
        place = await self._follow(sent_to, version, {field: new})
        await self._copied.confirm(self.slot, place, self.key)
        return bool(version)

    async def _follow(self, sent_to: SlotPlace, version: int, changed: Mapping[str, bytes | None]) -> SlotPlace:
        """Applies our own change and earlier ones of other nodes; 0 means that ours was not made. Where it is now.

        `sent_to` is the place when it was sent. If another server answers by now, either the change was redirected
        there, or a server took it that has been replaced: NotConfirmed if the new one does not have it.
        """
        if version == self.version + 1 and self.is_sure and self._link.timeline == sent_to.timeline:
            self._take_in(version, changed)
            return sent_to
        asked = self.slot.place.asked
        await self._catch_up()
        if self._link.timeline == sent_to.timeline:
            return sent_to
        if version and not (self.is_sure and all(self.rows.get(field) == row for field, row in changed.items())):
            raise NotConfirmed(" (the server that took it was replaced)")
        return SlotPlace(self._link.timeline, asked)

    def _take_in(self, version: int, changed: Mapping[str, bytes | None]) -> None:
        changed = {field: row for field, row in changed.items() if self.rows.get(field) != row}
        self._changed(changed)
        self.rows.update((field, row) for field, row in changed.items() if row is not None)
        for field in [field for field, row in changed.items() if row is None]:
            del self.rows[field]
        self.version = version

    async def _write_back(self, copy: list[Argument]) -> bool:
        """Gives a store that went back in time our copy; says whether it had."""
        return bool(await self._scripts.run("restore_rows", self._both_keys, copy))

    @abstractmethod
    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        """Follows up: the rows that are other than before, None for those that are gone. If one cannot be read, none
        is taken in."""


async def refresh_all(tables: Iterable[SharedHash]) -> None:
    """Applies other nodes' changes to several hashes: one command for all hashes of a slot.

    An error in one does not keep the others back; it is raised afterwards.
    """
    by_slot: dict[Slot, list[SharedHash]] = {}
    for table in tables:
        by_slot.setdefault(table.slot, []).append(table)
    portions = [some for of_slot in by_slot.values() for some in _portions(of_slot, _ASKED_AT_ONCE)]
    troubles: list[BaseException] = []
    for some in _portions(portions, _SLOTS_AT_ONCE):
        outcomes = await asyncio.gather(*map(_refresh_portion, some), return_exceptions=True)
        troubles += [outcome for outcome in outcomes if outcome is not None]
    if troubles:
        raise troubles[0]


async def _refresh_portion(tables: list[SharedHash]) -> None:
    versions = await tables[0].slot.scripts.run("versions", [table.key for table in tables], [VERSION])
    trouble: Exception | None = None
    for table, version in zip(tables, versions, strict=True):
        try:
            await table.follow_to(int(version))
        except Exception as error:  # it is raised below
            trouble = trouble or error
    if trouble is not None:
        raise trouble


def _portions(whole: list[Item], size: int) -> list[list[Item]]:
    return [whole[at : at + size] for at in range(0, len(whole), size)]
