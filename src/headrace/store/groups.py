"""Consumer groups as they are stored: the group itself, and its committed offsets.

A group is one hash with its owner and its state, its offsets are another. Whoever looks after a group takes it with a
token of its own, a rising number and chance; every later write checks that token in the same script, so a node that
was replaced and does not know it yet changes nothing. A commit is one atomic write per request.

A committed offset names the topic's id: when a topic is deleted and made again, its old commits count no more.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable

import msgspec

from headrace.store.errors import StoreError
from headrace.store.keys import Keys
from headrace.store.redis import Argument, RedisLink
from headrace.store.scripts import Scripts
from headrace.wire.errors import ErrorCode

log = logging.getLogger(__name__)


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: str


Place = tuple[str, int]
"""Topic and partition."""


class Taken(msgspec.Struct, frozen=True):
    """What the store had of a group when we took it."""

    owner: str
    """Ours from now on."""
    owner_before: str | None
    state: bytes | None
    offsets: dict[Place, Committed]

    def nobody_came_between(self, ours: str) -> bool:
        """Whether we were the last owner, `ours` being what we held before.

        A smaller number belongs to an owner before us: then the store went back in time.
        """
        before = self.owner_before
        return before is None or _name(before) == _name(ours) or _number(before) < _number(ours)


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
        self._name = secrets.token_hex(6)
        """Of this process: what it took without hearing the answer is still known as its own."""

    async def names(self) -> list[str]:
        """All groups that are stored, of all nodes; perhaps a few that no longer are."""
        return [name.decode() for name in await self._link.call("SMEMBERS", self._keys.groups)]

    async def take(self, group_id: str) -> Taken | None:
        """Makes us the owner of a group that is stored; from now on nobody else's writes count."""
        return await self._take(group_id, "0", create=False)

    async def create(self, group_id: str, last_owner: str = "0") -> Taken:
        """Makes us the owner, whether the group is stored or not. It is listed first: what is stored can be found."""
        await self._link.call("SADD", self._keys.groups, group_id)
        taken = await self._take(group_id, last_owner, create=True)
        assert taken is not None
        return taken

    async def _take(self, group_id: str, last_owner: str, *, create: bool) -> Taken | None:
        arguments: list[Argument] = [_number(last_owner), self._name, int(create)]
        reply = await self._scripts.run("take_group", self._both_keys(group_id), arguments)
        if reply is None:
            return None
        owner, before, state, rows = reply
        return Taken(owner.decode(), before.decode() if before else None, state, _offsets(group_id, rows))

    async def save(self, group_id: str, owner: str, state: bytes) -> None:
        """Stores the group."""
        await self._write(group_id, "save_group", [owner, state])

    async def commit(self, group_id: str, owner: str, offsets: dict[Place, Committed]) -> None:
        """Stores committed offsets, all or none."""
        arguments: list[Argument] = [owner]
        for place, committed in offsets.items():
            arguments += [_field(place), msgspec.json.encode(committed)]
        await self._write(group_id, "commit_offsets", arguments)

    async def delete_offsets(self, group_id: str, owner: str, places: Iterable[Place]) -> None:
        """Forgets committed offsets."""
        await self._write(group_id, "delete_offsets", [owner, *map(_field, places)])

    async def delete(self, group_id: str, owner: str, slug: str | None) -> None:
        """Forgets the group, its offsets included. A crash half-way leaves a name and a slug that anybody may reuse."""
        await self._write(group_id, "delete_group", [owner])
        await self.unlist(group_id)
        if slug is not None:
            await self._scripts.run("free_slug", [self._keys.group_slugs], [slug, group_id])

    async def unlist(self, group_id: str) -> None:
        """Takes a name off the list, of a group that is not stored."""
        await self._link.call("SREM", self._keys.groups, group_id)

    async def reserve_slug(self, group_id: str, slug: str) -> bool:
        """Makes a slug this group's, which is stored already; false if it is another's.

        A holder that is not stored was deleted: a slug is reserved only by groups that are.
        """
        if await self._link.call("HSETNX", self._keys.group_slugs, slug, group_id):
            return True
        holder = (await self._link.call("HGET", self._keys.group_slugs, slug) or b"").decode()
        if holder == group_id:
            return True
        if await self._link.call("EXISTS", self._keys.group(holder)):
            return False
        return bool(await self._scripts.run("replace_slug", [self._keys.group_slugs], [slug, holder, group_id]))

    async def _write(self, group_id: str, script: str, arguments: list[Argument]) -> None:
        if not await self._scripts.run(script, self._both_keys(group_id), arguments):
            raise OwnershipLost(group_id)

    def _both_keys(self, group_id: str) -> list[str]:
        return [self._keys.group(group_id), self._keys.group_offsets(group_id)]


def _offsets(group_id: str, rows: list[bytes]) -> dict[Place, Committed]:
    """Fields and values of the hash; one that cannot be read must not cost the group its others."""
    offsets: dict[Place, Committed] = {}
    for field, value in zip(rows[::2], rows[1::2], strict=True):
        try:
            offsets[_place(field)] = msgspec.json.decode(value, type=Committed)
        except ValueError as error:
            log.error("a stored commit cannot be read", extra={"group": group_id, "at": field, "why": str(error)})
    return offsets


def _number(owner: str) -> int:
    """The part of an owner's token that tells who came later."""
    return int(owner.split(".", 1)[0])


def _name(owner: str) -> str:
    return owner.split(".", 1)[1]


def _field(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _place(field: bytes) -> Place:
    topic, _, partition = field.decode().rpartition(":")
    return topic, int(partition)
