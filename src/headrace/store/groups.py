"""Consumer groups as they are stored: the group itself, and its committed offsets.

A group is one hash with the owner's token and the group's state, its offsets are another. Whoever looks after a group
takes it with a token of its own; every later write checks that token in the same script, so a node that was replaced
and does not know it yet changes nothing. A commit is one atomic write per request.

A committed offset names the topic's id: when a topic is deleted and made again, its old commits count no more.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from headrace.store.errors import StoreError
from headrace.store.keys import Keys
from headrace.store.redis import Argument, RedisLink
from headrace.store.scripts import Scripts
from headrace.wire.errors import ErrorCode


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: str


Place = tuple[str, int]
"""Topic and partition."""


class StoredState(msgspec.Struct, frozen=True):
    """What the store has of a group."""

    token: str
    state: bytes | None
    offsets: dict[Place, Committed]


class OwnershipLost(StoreError):
    """Another node took the group: nothing was written."""

    def __init__(self, group_id: str) -> None:
        super().__init__(ErrorCode.NOT_COORDINATOR, f"another node looks after group '{group_id}'")


class GroupStore:
    """Reads and writes groups."""

    def __init__(self, link: RedisLink, scripts: Scripts, keys: Keys) -> None:
        self._link = link
        self._scripts = scripts
        self._keys = keys

    async def names(self) -> list[str]:
        """All groups that are stored, of all nodes."""
        return [name.decode() for name in await self._link.call("SMEMBERS", self._keys.groups)]

    async def exists(self, group_id: str) -> bool:
        """Whether anything of a group is stored."""
        return bool(await self._link.call("EXISTS", self._keys.group(group_id)))

    async def take(self, group_id: str) -> StoredState:
        """Makes us the owner; from now on nobody else's writes count."""
        token = secrets.token_hex(8)
        await self._link.call("SADD", self._keys.groups, group_id)
        state = await self._scripts.run("take_group", [self._keys.group(group_id)], [token])
        rows = await self._link.call("HGETALL", self._keys.group_offsets(group_id))
        offsets = {
            _place(field): msgspec.json.decode(value, type=Committed)
            for field, value in zip(rows[::2], rows[1::2], strict=True)
        }
        return StoredState(token, state, offsets)

    async def save(self, group_id: str, token: str, state: bytes) -> None:
        """Stores the group."""
        await self._write(group_id, "save_group", [token, state])

    async def commit(self, group_id: str, token: str, offsets: dict[Place, Committed]) -> None:
        """Stores committed offsets, all or none."""
        arguments: list[Argument] = [token]
        for place, committed in offsets.items():
            arguments += [_field(place), msgspec.json.encode(committed)]
        await self._write(group_id, "commit_offsets", arguments)

    async def delete_offsets(self, group_id: str, token: str, places: Iterable[Place]) -> None:
        """Forgets committed offsets."""
        await self._write(group_id, "delete_offsets", [token, *map(_field, places)])

    async def delete(self, group_id: str, token: str, slug: str | None) -> None:
        """Forgets the group, its offsets included."""
        await self._write(group_id, "delete_group", [token])
        await self._link.call("SREM", self._keys.groups, group_id)
        if slug is not None:
            await self._link.call("HDEL", self._keys.group_slugs, slug)

    async def reserve_slug(self, group_id: str, candidates: Iterable[str]) -> str:
        """The first slug that no other group holds; it is this group's from now on."""
        for slug in candidates:
            if await self._link.call("HSETNX", self._keys.group_slugs, slug, group_id):
                return slug
            if (await self._link.call("HGET", self._keys.group_slugs, slug) or b"").decode() == group_id:
                return slug
        raise ValueError("no slug is left")

    async def _write(self, group_id: str, script: str, arguments: list[Argument]) -> None:
        keys = [self._keys.group(group_id), self._keys.group_offsets(group_id)]
        if not await self._scripts.run(script, keys, arguments):
            raise OwnershipLost(group_id)


def _field(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _place(field: bytes) -> Place:
    topic, _, partition = field.decode().rpartition(":")
    return topic, int(partition)
