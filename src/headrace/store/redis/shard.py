"""One server that holds partitions, and the links to it.

Two connections: one for appends and small commands, one for large replies, so that an acknowledgement never waits
behind a megabyte of somebody's Fetch. Both must end at the same server: with a name that resolves to several, or during
a failover, reads over one would say nothing about writes over the other. Until they agree the server counts as
unavailable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from headrace.store.lasting import LastingInRounds
from headrace.store.options import StoreOptions
from headrace.store.redis.address import Address
from headrace.store.redis.errors import StoreRefused
from headrace.store.redis.link import RedisLink, parse_info
from headrace.store.redis.memory import NO_EVICTION, Memory
from headrace.store.redis.replicas import Replicas
from headrace.store.redis.scripts import Scripts
from headrace.store.starting import is_silence, patiently

log = logging.getLogger(__name__)

_OLDEST_REDIS = (6, 2)


class Shard:
    """A server, seen from this node."""

    def __init__(
        self, address: Address, options: StoreOptions, locate: Callable[[], Awaitable[Address]] | None = None
    ) -> None:
        self.link = RedisLink(address, "commands", options.timeout_ms, locate=locate)
        self.reads = RedisLink(address, "reads", options.timeout_ms, locate=locate)
        self.link.on_greeted = lambda: self._greeted(self.link, self.reads)
        self.reads.on_greeted = lambda: self._greeted(self.reads, self.link)
        self.scripts = Scripts(self.link)
        self.memory = Memory(self.link, options.memory_high_mark_percent, may_evict=options.allow_eviction)
        self.replicas = Replicas(
            self.link,
            lambda name, timeout_ms: RedisLink(self.link.address, name, timeout_ms, locate=locate),
            options.replica_timeout_ms,
        )
        self.owned_writes = LastingInRounds(
            log,
            "the store rejects writes of groups and transactional ids",
            "the store accepts writes of groups and transactional ids again",
        )
        self._options = options
        self._is_named_by_others = locate is not None

    def __repr__(self) -> str:
        return str(self.link.address)

    async def serves(self) -> bool:
        """Whether it answers and takes commands: a server answers a PING in a cluster that is down, too."""
        if self.link.mode == "cluster":
            return parse_info(await self.link.call("CLUSTER", "INFO")).get("cluster_state") == "ok"
        await self.link.call("PING")
        return True

    @property
    def name(self) -> str:
        """For people: where it is."""
        return str(self.link.address)

    @property
    def links(self) -> list[RedisLink]:
        return [self.link, self.reads]

    async def start(self) -> None:
        """Connects; StoreRefused if the server cannot hold a log.

        While sentinels are slow, or choose another primary, it is waited for, as for the servers of a cluster.
        """
        for link in self.links:
            await (patiently(link.start, may_pass=is_silence) if self._is_named_by_others else link.start())
        await self.check()

    def start_soon(self) -> None:
        """Connects when it can."""
        self.link.start_soon()
        self.reads.start_soon()

    async def check(self) -> None:
        """Raises StoreRefused if the server cannot hold a log."""
        await self.link.wait_up(self.link.timeout_s)
        version = self.link.server.get("valkey_version") or self.link.server.get("redis_version", "0")
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_REDIS:
            raise StoreRefused(f"{self.link.address} is Redis {version}; 6.2 or later is needed")
        policy = await self.memory.look()
        self.memory.start_with(policy)
        if policy != NO_EVICTION and not self._options.allow_eviction:
            # Without maxmemory too: a limit that is set later makes it evict, with nobody to say so.
            raise StoreRefused(
                f"{self.link.address} evicts keys when it is full (maxmemory-policy {policy}) and would lose records; "
                "set it to noeviction, or start with --allow-eviction if you accept that"
            )

    async def close(self) -> None:
        await self.replicas.close()
        await self.link.close()
        await self.reads.close()

    @staticmethod
    def _greeted(link: RedisLink, other: RedisLink) -> None:
        if not other.server:
            return
        if link.identity == other.identity:
            link.admit()
            other.admit()
        else:
            other.drop("the server was replaced")
