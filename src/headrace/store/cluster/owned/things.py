"""Owned state as it is stored: a document, rows beside it, and the token of the node that may write them.

A thing is two hashes in one slot: the document with its owner, and the rows. A node takes a thing with its own token, a
rising number, the process's name, and the number since which no other process owned the thing; every later write checks
that token in the same script, so writes of a replaced owner have no effect. A write is atomic, however many fields and
rows it has. Every thing is listed before it is stored, so that a new owner finds it by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

import msgspec

from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.errors import RedisError, StoreError
from headrace.store.redis.link import Argument
from headrace.store.redis.replicas import NotEnoughReplicas
from headrace.store.redis.shard import Shard
from headrace.store.redis.topology import Slot, Topology
from headrace.wire.errors import ErrorCode

OWNER = "owner"
"""The field of the document that the store itself writes."""
_DELETED_MS = 24 * 60 * 60 * 1000
"""How long the token of a deleted thing stays: longer than an earlier owner is frozen."""
NEVER_EXPIRES = -1
"""Redis's answer for a document that is stored; of a deleted one only the owner's token is left, for a while."""
_LOST_BY_NOBODY = -1
"""Instead of the number of a token that the store may have lost."""


class OwnedKeys(NamedTuple):
    """Where the things of one kind are."""

    listing: Callable[[str], str]
    """By organisation: the set of all names."""
    document: Callable[[str, str], str]
    """By organisation and id."""
    rows: Callable[[str, str], str]
    registers: Callable[[str], tuple[str, ...]] = lambda org: ()
    """By organisation: further keys in which things are noted."""


class Taken(msgspec.Struct, frozen=True):
    """The stored state of a thing when this node took it over."""

    owner: str
    """Ours from now on."""
    fields: dict[str, bytes]
    rows: dict[str, bytes]

    def nobody_came_between(self, ours: str) -> bool:
        """Whether no other process has owned it since we took it with the token `ours`."""
        return _since(self.owner) <= _number(ours)


class Changes(NamedTuple):
    """One write: values to set, None to remove."""

    fields: Mapping[str, bytes | None]
    rows: Mapping[str, bytes | None]


class OwnershipLost(StoreError):
    """Another node took the thing: nothing was written."""

    def __init__(self, name: str) -> None:
        super().__init__(ErrorCode.NOT_COORDINATOR, f"another node owns '{name}'")


@contextmanager
def noted(shard: Shard) -> Iterator[None]:
    """Around a write: notes whether the server rejects it. One that is away, or has lost the slot, does not."""
    try:
        yield
    except StoreError as error:
        why = error.__cause__ if isinstance(error, NotConfirmed) and error.__cause__ else error
        is_rejected = isinstance(why, NotConfirmed | NotEnoughReplicas)
        if is_rejected or (isinstance(why, RedisError) and not why.is_redirect):
            shard.owned_writes.met(server=shard.name, why=str(error))
        raise
    shard.owned_writes.passed()


class OwnedStore:
    """Reads and writes the things of one kind."""

    def __init__(self, topology: Topology, keys: OwnedKeys) -> None:
        self._topology = topology
        self._keys = keys
        self._process = secrets.token_hex(6)
        """Lets this process recognise what it took over without receiving the reply."""

    async def names(self, org: str) -> list[str]:
        """All things that are stored, of all nodes; perhaps a few that no longer are."""
        listing = self._keys.listing(org)
        return [name.decode() for name in await self._topology.slot_of(listing).link.call("SMEMBERS", listing)]

    def registers_timeline(self, org: str) -> tuple[int, ...]:
        """Changes when the servers that list the things may have gone back in time: often not those of the things."""
        keys = (self._keys.listing(org), *self._keys.registers(org))
        return tuple(self._topology.slot_of(key).link.timeline for key in keys)

    def slot_of(self, org: str, name: str) -> Slot:
        """Where a thing is: the server that has it, now and later."""
        return self._topology.slot_of(self._keys.document(org, name))

    async def is_owner(self, org: str, name: str, owner: str) -> bool:
        """Whether the thing is still ours by this token; if it is empty, whether there still is no such thing."""
        document = self._keys.document(org, name)
        link = self._topology.slot_of(document).link
        found = await link.call("HGET", document, OWNER) or b""
        if not owner and found:
            return bool(await link.call("PTTL", document) != NEVER_EXPIRES)
        return bool(found == owner.encode())

    async def take(self, org: str, name: str) -> Taken | None:
        """Takes ownership of a stored thing; writes of earlier owners are refused from now on."""
        return await self._take(org, name, create=False)

    async def create(self, org: str, name: str) -> str:
        """Makes us the owner of a thing that was not stored; OwnershipLost if another node has stored it since."""
        await self.enlist(org, name)
        taken = cast("Taken", await self._take(org, name))
        if taken.fields or taken.rows:
            raise OwnershipLost(name)
        return taken.owner

    async def take_again(
        self, org: str, name: str, ours: str, outbid: int, timeline: int | None, *, leaves: bool = False
    ) -> Taken | None:
        """Makes us the owner again, with a number above `outbid`.

        On another timeline the store may have lost our tokens: one with a lower number is of an owner before us, and
        none is no sign of a deletion. Who took it there since then has the number of our first one, or a higher one.
        Without a `timeline` no other process can have owned the thing meanwhile. Who leaves only keeps its token.
        """
        if leaves:
            return await self._keep(org, name, ours)
        may_be_lost = timeline is None or self.slot_of(org, name).link.timeline != timeline
        above, lost = max(_number(ours), outbid), _since(ours) if may_be_lost else _LOST_BY_NOBODY
        return await self._take(org, name, above, lost, here=not may_be_lost)

    async def _keep(self, org: str, name: str, ours: str) -> Taken | None:
        """What is stored, with the token of an owner that leaves; None if another process took it on this server.

        The token does not rise: to an owner that came after this one, and that the server forgot, ours is an older one.
        """
        arguments: list[Argument] = [ours, self._process, _since(ours)]
        slot = self.slot_of(org, name)
        with noted(slot.shard):
            return _taken(await slot.scripts.run("keep_owned", self._both(org, name), arguments))

    async def enlist(self, org: str, name: str) -> None:
        """Puts a name on the list, before the thing is stored."""
        listing = self._keys.listing(org)
        await self._topology.slot_of(listing).link.call("SADD", listing, name)

    async def _take(
        self,
        org: str,
        name: str,
        above: int = 0,
        lost: int = _LOST_BY_NOBODY,
        *,
        create: bool = True,
        here: bool = False,
    ) -> Taken | None:
        arguments: list[Argument] = [above, self._process, int(create), lost]
        slot = self.slot_of(org, name)
        run = slot.scripts.run_here if here else slot.scripts.run
        with noted(slot.shard):
            return _taken(await run("take_owned", self._both(org, name), arguments))

    async def write(self, org: str, name: str, owner: str, changes: Changes) -> None:
        """Stores changes, all or none."""
        arguments: list[Argument] = [owner]
        for values in changes:
            kept: list[Argument] = []
            gone: list[Argument] = []
            for field, value in values.items():
                if value is None:
                    gone.append(field)
                else:
                    kept += (field, value)
            arguments += (len(kept), *kept, len(gone), *gone)
        await self._guarded(org, name, "write_owned", arguments)

    async def restore(self, org: str, name: str, owner: str, changes: Changes) -> None:
        """Writes back what a store that went back in time has lost."""
        await self.write(org, name, owner, changes)

    async def rows(self, org: str, name: str) -> dict[str, bytes]:
        """The rows, whoever owns the thing."""
        document, rows = self._both(org, name)
        return _pairs(await self._topology.slot_of(document).link.call("HGETALL", rows))

    async def replace_rows(self, org: str, name: str, seen: Mapping[str, bytes], rows: Mapping[str, bytes]) -> int:
        """Replaces rows of a thing that another process may own by now; how many, for some may not be as seen."""
        both = self._both(org, name)
        slot, copied = self._topology.slot_of(both[0]), self._topology.copied
        arguments: list[Argument] = [self._process]
        for field, value in rows.items():
            arguments += (field, seen.get(field, b""), value)
        place = slot.place
        replaced: int = await slot.scripts.run_here("replace_owned_rows", both, arguments)
        await copied.confirm(slot, place, both[0])
        return replaced

    async def delete(self, org: str, name: str, owner: str) -> None:
        """Forgets the thing, its rows included. It stays on the list."""
        await self._guarded(org, name, "delete_owned", [owner, _DELETED_MS])

    async def unlist(self, org: str, name: str) -> None:
        """Takes a name off the list, of a thing that is not stored."""
        listing = self._keys.listing(org)
        await self._topology.slot_of(listing).link.call("SREM", listing, name)

    async def _guarded(self, org: str, name: str, script: str, arguments: list[Argument]) -> None:
        """A write that is redirected is not made: what is known was seen on another server, and has to be seen here."""
        both = self._both(org, name)
        slot, copied = self._topology.slot_of(both[0]), self._topology.copied
        with noted(slot.shard):
            await copied.check(slot.shard)
            place = slot.place
            if not await slot.scripts.run_here(script, both, arguments):
                raise OwnershipLost(name)
            await copied.confirm(slot, place, both[0])

    def _both(self, org: str, name: str) -> list[str]:
        return [self._keys.document(org, name), self._keys.rows(org, name)]


def _taken(reply: tuple[bytes, list[bytes], list[bytes]] | None) -> Taken | None:
    if reply is None:
        return None
    owner, fields, rows = reply
    document = _pairs(fields)
    del document[OWNER]
    return Taken(owner.decode(), document, _pairs(rows))


def _pairs(reply: Iterable[bytes]) -> dict[str, bytes]:
    flat = iter(reply)
    return {field.decode(): value for field, value in zip(flat, flat, strict=True)}


def _number(owner: str) -> int:
    """The part of an owner's token that tells who came later."""
    return int(owner.split(".")[0])


def _since(owner: str) -> int:
    """The number with which the process of a token began to own the thing."""
    return int(owner.split(".")[2])
