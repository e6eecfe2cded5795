"""The servers of a Redis Cluster and their slots, kept up to date in the background.

Any server can provide the map (CLUSTER SLOTS). It is read again when a command was redirected, when a server is silent,
could not be reached or has become a replica, and periodically: a server that vanishes never says MOVED. A redirect
updates its own slot at once. If servers disagree, the answer with the highest epoch wins; answers from servers that are
cut off or behind are ignored.

A server without slots is left at once, and what was in flight on it has an unknown outcome: nobody waits for a server
that hangs once another one has taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address, HostPort
from headrace.store.redis.errors import RedisError, StoreAway, StoreError, StoreRefused
from headrace.store.redis.link import RedisLink, parse_info
from headrace.store.redis.shard import Shard
from headrace.store.redis.topology import SLOTS, Slot, Topology, slot_number

log = logging.getLogger(__name__)

_REFRESH_EVERY_S = 5.0
_REFRESH_IN_TROUBLE_S = 0.25
_REFRESH_PAUSE_S = 0.1
_ASKED_AT_ONCE = 3
_ANSWER_S = 2.0
_LATER_ANSWER_S = 0.25
"""How long the other servers may take once one has answered."""
_START_PATIENCE_S = 5.0
_ASKED_FOR_S = 30.0
"""A server without slots is kept so long after a command was sent on to it: it is getting its first one."""
_NAMELESS = "?"
"""The host of a server without one, where `cluster-preferred-endpoint-type` is hostname."""
_NO_SERVER = "a slot of the cluster has no server"
_ASSIGN = "assign all slots; see `redis-cli --cluster check`"
_BELIEVE_AGAIN_S = 30.0
"""After so long without an answer of the epoch that is known a lower one is believed: the cluster was made anew."""


class ClusterMap(NamedTuple):
    """The servers of all slots, as one server sees them."""

    epoch: int
    is_whole: bool
    """Whether that server says that the cluster works."""
    owners: dict[int, HostPort]
    """Slot -> server, for every slot that has one."""
    servers: frozenset[HostPort]
    """All of them, replicas too."""


class ClusterTopology(Topology):
    """A cluster, seen from this node."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        super().__init__(address, options)
        self._shards: dict[HostPort, Shard] = {}
        self._slots: dict[int, Slot] = {}
        self._map = ClusterMap(-1, False, {}, frozenset())
        self._with_slots: set[HostPort] = set()
        """The servers that have some, by this map or by a redirect since."""
        self._asked_at: dict[HostPort, float] = {}
        """When commands were last sent on to servers that a slot is moving to."""
        self._links: WeakSet[RedisLink] = WeakSet()
        """Connections that others asked for."""
        self._heard_at = 0.0
        self._changes = 0
        self._nobody = Shard(address, options)
        """Stands for the server of a slot that nobody has: never connected."""
        for link in self._nobody.links:
            link.why_away = _NO_SERVER
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        try:
            self._adopt(await self._first_map())
            await asyncio.gather(*(self._check(shard) for shard in self.shards))
        except BaseException:
            await self.close()
            raise
        self._task = asyncio.create_task(self._keep(), name="cluster map")

    async def _check(self, shard: Shard) -> None:
        try:
            await shard.link.wait_up(_START_PATIENCE_S)
            await shard.check()
        except StoreAway as error:  # the rest of the cluster is there
            if shard.link.refusal is not None:
                raise shard.link.refusal from None
            log.warning("a server of the cluster is unavailable", extra={"address": repr(shard), "why": error.why})

    async def _first_map(self) -> ClusterMap:
        why: StoreError = StoreAway("no server of the cluster was named")
        for place in self.address.seeds:
            try:
                found = await self._ask_at(place)
            except StoreError as error:
                why = error
                continue
            if found.owners:
                return found
            why = StoreAway(f"no slots are assigned in the cluster of {place}", "see `redis-cli --cluster create`")
        raise why

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._closing, *(shard.close() for shard in self._shards.values()))

    # -- what the store asks ------------------------------------------------------------------------------------

    def slot_of(self, key: str) -> Slot:
        number = slot_number(key)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(number, self._owner(number), self._redirected)
        return slot

    def shard_of(self, key: str) -> Shard:
        return self._owner(slot_number(key))

    @property
    def shards(self) -> list[Shard]:
        return list(self._shards.values())

    @property
    def slots_without_server(self) -> int:
        return SLOTS - len(self._map.owners)

    @property
    def timeline(self) -> int:
        return self._changes + sum(shard.link.timeline for shard in self._shards.values())

    @property
    def _lasting(self) -> Iterable[Shard]:
        """Those with slots: one that gets its first key by key has nothing yet that it could lose."""
        return (shard for place, shard in self._shards.items() if place in self._with_slots)

    @property
    def streams_share_a_read(self) -> bool:
        return False  # CROSSSLOT, also where one server has both

    def new_link(self, name: str, timeout_ms: int, slot: Slot | None = None) -> RedisLink:
        async def locate() -> Address:
            if slot is not None:
                if slot.shard is self._nobody:
                    raise StoreAway(f"{self.address}: {_NO_SERVER}", _ASSIGN)
                return slot.shard.link.address
            up = [shard for shard in self.shards if shard.link.is_up] or self.shards
            return random.choice(up).link.address if up else self.address.at(random.choice(self.address.seeds))

        async def locate_anew() -> Address:
            await self._refresh()
            return await locate()

        link = RedisLink(self.address, name, timeout_ms, locate=locate)
        link.on_redirect, link.on_trouble = partial(self._redirected, link=link), self._due.set
        link.locate_anew = locate_anew if slot is not None else None
        self._links.add(link)
        return link

    # -- the map ------------------------------------------------------------------------------------------------

    def _owner(self, number: int) -> Shard:
        place = self._map.owners.get(number)
        return self._nobody if place is None else self._shard_at(place)

    def _shard_at(self, place: HostPort) -> Shard:
        shard = self._shards.get(place)
        if shard is None:
            shard = self._shards[place] = Shard(self.address.at(place), self._options)
            for link in (shard.link, shard.reads):
                link.on_trouble = link.on_silence = self._due.set
                link.on_redirect = partial(self._redirected, link=link)
            shard.start_soon()
        return shard

    def _redirected(self, error: RedisError, link: RedisLink) -> Shard:
        """The server that a redirect names. A slot that moved counts as moved at once."""
        self._due.set()
        kind, number, where = error.text.split(" ")[:3]
        host, _, port = where.rpartition(":")
        if host == _NAMELESS:
            return self._owner(int(number))  # only the map has its address
        place = HostPort(host.strip("[]") or link.address.host, int(port))
        if kind == "ASK":
            self._asked_at[place] = asyncio.get_running_loop().time()
        else:
            self._with_slots.add(place)
        shard = self._shard_at(place)
        slot = self._slots.get(int(number))
        if kind == "MOVED" and slot is not None and slot.shard is not shard:
            self._changes += 1
            slot.move_to(shard)
        return shard

    def _adopt(self, new: ClusterMap) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._map, self._with_slots = new, set(new.owners.values())
        moved, is_first = 0, not self._shards
        for place in self._with_slots:
            self._shard_at(place)
        for number, slot in self._slots.items():
            shard = self._owner(number)
            if shard is not slot.shard and shard is not self._nobody:
                slot.move_to(shard)
                moved += 1
        if moved and not is_first:
            self._changes += 1
            log.info("slots moved", extra={"slots": moved, "servers": len(self._with_slots)})
        self._asked_at = {place: at for place, at in self._asked_at.items() if self._heard_at - at < _ASKED_FOR_S}
        self._let_go(self._with_slots | self._asked_at.keys())

    def _let_go(self, needed: set[HostPort]) -> None:
        """Closes the ways to servers that have no slots any more: they may not be part of the cluster, either."""
        used = {id(slot.shard) for slot in self._slots.values()}
        for place in [place for place in self._shards if place not in needed]:
            if id(self._shards[place]) not in used:
                shard = self._shards.pop(place)
                self._changes += shard.link.timeline + 1
                task = asyncio.create_task(shard.close(), name=f"leave {place}")
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                for link in self._links:
                    if link.address == shard.link.address:
                        link.drop("the server has no slots any more")

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                is_whole = all(shard.link.is_up for shard in self.shards)
                async with asyncio.timeout(_REFRESH_EVERY_S if is_whole else _REFRESH_IN_TROUBLE_S):
                    await self._due.wait()
            self._due.clear()
            try:
                await self._refresh()
            except Exception:
                log.exception("reading the cluster's map failed")
            await asyncio.sleep(_REFRESH_PAUSE_S)

    async def _refresh(self) -> None:
        found = await self._ask_some()
        if not found:
            return
        best = max(found, key=lambda one: (one.is_whole, one.epoch))
        if best.epoch < self._map.epoch and asyncio.get_running_loop().time() - self._heard_at < _BELIEVE_AGAIN_S:
            return
        self._adopt(best)

    async def _ask_some(self) -> list[ClusterMap]:
        """The maps of a few servers that answer; of any that was ever heard of, if none of those with slots does."""
        up = [shard for shard in self.shards if shard.reads.is_up]
        asked = random.sample(up, min(len(up), _ASKED_AT_ONCE))
        found = await _answers(partial(_read_map, shard.reads) for shard in asked)
        if found:
            return found
        places = list(self._map.servers | set(self.address.seeds))
        random.shuffle(places)
        for at in range(0, len(places), _ASKED_AT_ONCE):
            if found := await _answers(partial(self._ask_at, place) for place in places[at : at + _ASKED_AT_ONCE]):
                return found
        return []

    async def _ask_at(self, place: HostPort) -> ClusterMap:
        link = RedisLink(self.address.at(place), "cluster map", self._options.timeout_ms, any_role=True)
        try:
            await link.start()
            if link.mode != "cluster":
                form, name = ("+sentinel", "/NAME") if link.mode == "sentinel" else ("", "")
                where = f"redis{'s' if self.address.tls else ''}{form}://{place}{name}"
                raise StoreRefused(f"{place} is not part of a cluster; start with --redis {where}")
            return await _read_map(link)
        finally:
            await link.close()


async def _answers(asked: Iterable[Callable[[], Awaitable[ClusterMap]]]) -> list[ClusterMap]:
    """What servers answer; one that hangs is not waited for once another one answered."""

    async def in_time(ask: Callable[[], Awaitable[ClusterMap]]) -> ClusterMap | None:
        with contextlib.suppress(StoreError, StoreRefused, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                return await ask()
        return None

    pending = {asyncio.create_task(in_time(ask)) for ask in asked}
    found: list[ClusterMap] = []
    try:
        while pending:
            patience_s = _LATER_ANSWER_S if found else None
            done, pending = await asyncio.wait(pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            found += [answer for one in done if (answer := one.result()) is not None]
    finally:
        for one in pending:
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return found


async def _read_map(link: RedisLink) -> ClusterMap:
    info, rows = await link.pipeline(("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))
    facts = parse_info(info)
    owners: dict[int, HostPort] = {}
    servers: set[HostPort] = set()
    for first, last, *nodes in rows:
        places = [_place_of(node, link.address.host) for node in nodes]
        servers.update(places)
        owners.update(dict.fromkeys(range(first, last + 1), places[0]))
    is_whole = facts.get("cluster_state") == "ok" and len(owners) == SLOTS
    return ClusterMap(int(facts.get("cluster_current_epoch", 0)), is_whole, owners, frozenset(servers))


def _place_of(node: list[Any], asked: str) -> HostPort:
    """An empty host is the one that was asked. A server that has no name among others has its address behind it."""
    host = (node[0] or b"").decode()
    if host == _NAMELESS:
        facts = node[3] if len(node) > 3 else []
        host = dict(zip(facts[::2], facts[1::2], strict=True)).get(b"ip", b"").decode()
    return HostPort(host or asked, int(node[1]))
