"""Which server has which keys. A single server, or a primary named by sentinels, is a cluster with one slot.

Users of the store ask for the slot of their key once and keep it: the slot knows its current server.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from weakref import WeakSet

from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address, HostPort
from headrace.store.redis.copied_writes import CopiedWrites
from headrace.store.redis.errors import RedisError, StoreError, StoreRefused
from headrace.store.redis.link import Argument, RedisLink
from headrace.store.redis.memory import Room
from headrace.store.redis.route import Redirected, Route
from headrace.store.redis.scripts import Scripts
from headrace.store.redis.sentinel import Sentinels
from headrace.store.redis.shard import Shard
from headrace.store.shared_work import all_of

SLOTS = 16384


class SlotPlace(NamedTuple):
    """Where commands for a slot went: compared afterwards, it says whether all of them went to its server of now."""

    timeline: int
    asked: int


class Slot:
    """Where some keys are: the server that has them now, and the ways to it."""

    __slots__ = ("link", "number", "reads", "scripts", "shard")

    def __init__(self, number: int, shard: Shard, redirected: Redirected) -> None:
        self.number = number
        self.shard = shard
        self.link = Route(shard, lambda one: one.link, redirected)
        self.reads = Route(shard, lambda one: one.reads, redirected)
        self.scripts = Scripts(self.link)

    @property
    def place(self) -> SlotPlace:
        """Changes with the server, its runs, and with each command that another server was asked to take (ASK)."""
        return SlotPlace(self.link.timeline, self.link.asked + self.reads.asked)

    def move_to(self, shard: Shard) -> None:
        """Another server has the keys from now on."""
        self.shard = shard
        self.link.lead_to(shard)
        self.reads.lead_to(shard)


def slot_number(key: str) -> int:
    """The slot of a key: a checksum of its hash tag, or of the whole key."""
    begin = key.find("{") + 1
    end = key.find("}", begin) if begin else 0
    tag = key[begin:end] if end > begin else key
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


class Topology(ABC):
    """The servers of a store."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self.address = address
        self.copied = CopiedWrites()
        self._options = options

    @abstractmethod
    async def start(self) -> None:
        """Connects to all servers; StoreRefused if one cannot hold a log."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def slot_of(self, key: str) -> Slot:
        """Where a key is, now and later."""

    @abstractmethod
    def shard_of(self, key: str) -> Shard:
        """The server that has a key now: nothing is kept, so any number of keys may be tried."""

    @property
    @abstractmethod
    def shards(self) -> list[Shard]:
        """The servers of now."""

    @property
    def slots_without_server(self) -> int:
        """How many slots nobody has."""
        return 0

    @property
    @abstractmethod
    def timeline(self) -> int:
        """Changes whenever some keys may have gone back in time."""

    @property
    def _lasting(self) -> Iterable[Shard]:
        """The servers that have something to lose."""
        return self.shards

    @property
    def identity(self) -> str:
        """Identity of all servers together, in their current runs."""
        return " ".join(sorted(shard.link.identity for shard in self._lasting if shard.link.server))

    @property
    def runs(self) -> str:
        """The same in short, for comparing it between nodes; nothing until each server was reached once.

        Without replication ids: a server may change its own without losing anything, and only new connections see it.
        """
        servers = [shard.link.server for shard in self._lasting]
        runs = " ".join(sorted(server.get("run_id", "") for server in servers))
        return hashlib.blake2b(runs.encode(), digest_size=8).hexdigest() if all(servers) else ""

    @abstractmethod
    def new_link(self, name: str, timeout_ms: int, slot: Slot | None = None) -> RedisLink:
        """A connection of one's own to the server of a slot, or to any server."""

    @property
    def streams_share_a_read(self) -> bool:
        """Whether one XREAD can wait for streams of several slots."""
        return True

    async def answers(self, timeout_s: float) -> bool:
        """Whether any server serves, asked now: what the others have is served while some are away."""
        asked = [asyncio.ensure_future(shard.serves()) for shard in self.shards]
        try:
            for one in asyncio.as_completed(asked, timeout=timeout_s):
                with contextlib.suppress(StoreError):
                    if await one:
                        return True
        except TimeoutError:
            pass
        finally:
            for other in asked:
                other.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return False

    async def call_each(self, commands: Iterable[tuple[Argument, ...]]) -> list[Any]:
        """The replies of commands in any slots (each one's first argument is its key)."""
        numbered = list(enumerate(commands))
        by_slot: dict[Slot, list[int]] = {}
        for at, command in numbered:
            by_slot.setdefault(self.slot_of(str(command[1])), []).append(at)
        replies: list[Any] = [None] * len(numbered)

        async def ask(slot: Slot, places: list[int]) -> None:
            for at, reply in zip(places, await slot.link.pipeline(*(numbered[at][1] for at in places)), strict=True):
                replies[at] = reply

        await all_of(ask(*one) for one in by_slot.items())
        return replies

    # -- memory -------------------------------------------------------------------------------------------------

    async def look_at_servers(self) -> None:
        """Learns how full each server is, and whether it is still known by its present id."""

        async def look(shard: Shard) -> None:
            shard.memory.note_policy(await shard.memory.look())
            shard.memory.appends.round_ended()
            shard.owned_writes.round_ended()
            await shard.replicas.look()

        await all_of(look(shard) for shard in self.shards if shard.link.is_up)

    async def room(self) -> Room | None:
        """How much all hold together; None if one has no limit."""
        rooms = [await shard.memory.room() for shard in self.shards]
        found = [room for room in rooms if room is not None]
        if not found or len(found) < len(rooms):
            return None
        return Room(sum(room.total_bytes for room in found), sum(room.free_bytes for room in found))

    @property
    def memory_percent(self) -> int:
        """How full the fullest server is."""
        return max((shard.memory.percent for shard in self.shards), default=0)


class OneServer(Topology):
    """All keys are on one server, whichever it is at a time."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        super().__init__(address, options)
        self._sentinels = Sentinels(address, options, self._replaced) if address.form == "sentinel" else None
        self._locate: Callable[[], Awaitable[Address]] | None = self._sentinels.primary if self._sentinels else None
        self._shard = Shard(address, options, self._locate)
        self._slot = Slot(0, self._shard, self._redirected)
        self._shards = [self._shard]
        self._links: WeakSet[RedisLink] = WeakSet()
        """Connections that others asked for."""

    async def start(self) -> None:
        if self._sentinels is not None:
            await self._sentinels.start()
        try:
            await self._shard.start()
            if trouble := not_one_server(self._shard.link):
                raise StoreRefused(trouble)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._shard.close()
        if self._sentinels is not None:
            await self._sentinels.close()

    def slot_of(self, key: str) -> Slot:
        return self._slot

    def shard_of(self, key: str) -> Shard:
        return self._shard

    @property
    def shards(self) -> list[Shard]:
        return self._shards

    @property
    def timeline(self) -> int:
        return self._shard.link.timeline

    @property
    def identity(self) -> str:
        return self._shard.link.identity

    def new_link(self, name: str, timeout_ms: int, slot: Slot | None = None) -> RedisLink:
        link = RedisLink(self._shard.link.address, name, timeout_ms, locate=self._locate)
        self._links.add(link)
        return link

    def _replaced(self, primary: Address) -> None:
        """The sentinels name another server: the old one may live on, and is not believed."""
        for link in (*self._shard.links, *self._shard.replicas.links, *self._links):
            if (link.address.host, link.address.port) != (primary.host, primary.port):
                link.abandon("the sentinels name another primary")

    def _redirected(self, error: RedisError, link: RedisLink) -> Shard:
        raise error


def not_one_server(link: RedisLink) -> str:
    """The error for a URL that names a single server of a cluster, or a sentinel; nothing otherwise."""
    address = link.address
    scheme = "rediss" if address.tls else "redis"
    where = "HOST:PORT" if address.path else f"{HostPort(address.host, address.port)}"
    if link.mode == "cluster":
        return f"{address} is part of a cluster; start with --redis {scheme}+cluster://{where}"
    if link.mode == "sentinel":
        return f"{address} is a sentinel; start with --redis {scheme}+sentinel://{where}/NAME"
    return ""


def open_topology(address: Address, options: StoreOptions) -> Topology:
    """The servers behind an address."""
    if address.form != "cluster":
        return OneServer(address, options)
    from headrace.store.redis.cluster import ClusterTopology

    return ClusterTopology(address, options)
