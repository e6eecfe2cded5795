"""The store as the broker sees it: topics, partitions, nodes, and the upkeep that goes on behind them.

It holds two connections: one for appends and small commands, one for large replies, so that an acknowledgement never
waits behind a megabyte of somebody's Fetch; two more to listen on, once there is something to listen to. Nothing here
is the truth; all of it can be read again from Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import msgspec

from headrace.cold_log import ColdAway, ColdLog
from headrace.store.address import Address
from headrace.store.announcements import Announcements
from headrace.store.catalogue import Catalogue, Topic
from headrace.store.cold_access import InTime, NoLake
from headrace.store.cold_reads import ColdReads
from headrace.store.errors import PartitionGone, RedisError, StoreError
from headrace.store.formats import is_stream, is_tiered
from headrace.store.groups import GroupStore
from headrace.store.identity import kafka_uuid, new_id
from headrace.store.keys import Keys
from headrace.store.nodes import Node, NodeIdTaken, Nodes
from headrace.store.partition import Partition
from headrace.store.partitions import AnyPartition
from headrace.store.redis import Argument, RedisLink, parse_info
from headrace.store.scripts import Scripts
from headrace.store.stream_partition import StreamPartition
from headrace.store.stream_watch import StreamWatch
from headrace.store.tail import TailCache

log = logging.getLogger(__name__)

_UPKEEP_EVERY_S = 1.0
_OLDEST_REDIS = (6, 2)
_TOLD_TOPICS = 10


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of the store."""

    prefix: str = "headrace"
    timeout_ms: int = 10_000
    node_lease_ms: int = 10_000
    tail_cache_bytes: int = 64 << 20
    append_entry_bytes: int = 1 << 20
    index_interval_bytes: int = 64 << 10
    snapshot_interval_bytes: int = 8 << 20
    producer_expiration_ms: int = 86_400_000
    memory_high_mark_percent: int = 90
    allow_eviction: bool = False
    cold_timeout_ms: int = 10_000


class StoreRefused(Exception):
    """This Redis cannot hold a log; the message says why and what to do."""


class Store:
    """Everything that lives in Redis."""

    def __init__(self, address: Address, me: Node, options: StoreOptions) -> None:
        self.options = options
        self.cold: ColdLog = NoLake()
        self.cold_reads = ColdReads(self)
        self.keys = Keys(options.prefix)
        self.link = RedisLink(address, "commands", options.timeout_ms)
        self.reads = RedisLink(address, "reads", options.timeout_ms)
        self.scripts = Scripts(self.link)
        self.catalogue = Catalogue(self.link, self.scripts, self.keys)
        self.nodes = Nodes(self.link, self.scripts, self.keys, me, options.node_lease_ms)
        self.groups = GroupStore(self.link, self.scripts, self.keys)
        self.announcements = Announcements(self)
        self.stream_watch = StreamWatch(self)
        self.tails = TailCache(options.tail_cache_bytes)
        self.cluster_id = ""
        self.memory_is_full = False
        self.memory_percent = 0
        self.events: Counter[str] = Counter()
        self.catalogue.on_load = self._forget_deleted
        self._partitions: dict[tuple[bytes, int], AnyPartition] = {}
        self._opening: dict[tuple[bytes, int], asyncio.Task[AnyPartition]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._restored_timeline = self.link.timeline
        self._is_restoring = False
        self._told_kind = ""

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects, checks the server, claims the node id and reads the catalogue."""
        try:
            await self.link.start()
            await self.reads.start()
            await self._check_server()
            await self.link.call("HSETNX", self.keys.cluster, "id", kafka_uuid(new_id()))
            self.cluster_id = (await self.link.call("HGET", self.keys.cluster, "id")).decode()
            await self.nodes.claim()
            await self.catalogue.load()
            await self.announcements.start()
        except BaseException:
            await self.announcements.close()
            await self.link.close()
            await self.reads.close()
            raise
        self.spawn(self.catalogue.sweep())
        self.spawn(self._upkeep())

    def plug_in(self, cold: ColdLog) -> None:
        """Takes a reader of the lake; whoever plugged it in closes it."""
        self.cold = InTime(cold, self.options.cold_timeout_ms)

    def prepare_tiering(self) -> None:
        """If there are topics that need a lake, has its reader started; says it, if there is none."""
        topics = [topic.name for topic in self.catalogue.by_name.values() if is_tiered(topic.configs)]
        if topics and not isinstance(self.cold, NoLake):
            self.spawn(self._warm_up())
        elif topics:
            log.error(
                "topics have remote.storage.enable and this broker has no --lake: their old records cannot be read, "
                "and none leave Redis",
                extra={"topics": ", ".join(sorted(topics)[:_TOLD_TOPICS]), "number": len(topics)},
            )

    async def _warm_up(self) -> None:
        with contextlib.suppress(ColdAway):  # who needs it asks again, and is told
            await self.cold.check()

    async def close(self) -> None:
        """Saves what makes the next start cheap, gives the lease back, disconnects."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cold_reads.close()
        partitions = [partition for partition in self._partitions.values() if not partition.is_gone]
        try:
            if self.link.is_up:
                async with asyncio.timeout(5):
                    await asyncio.gather(*(self._leave(partition) for partition in partitions))
                    await self.nodes.release()
                    await self.announcements.nodes_changed()
        except (StoreError, TimeoutError) as error:
            log.warning("the store was left without a farewell", extra={"why": str(error)})
        await self.announcements.close()
        await self.stream_watch.close()
        await self.link.close()
        await self.reads.close()
        for partition in partitions:
            await partition.close()

    async def _leave(self, partition: AnyPartition) -> None:
        with contextlib.suppress(PartitionGone):
            await partition.confirm()  # what a store that went back in time lost is in our cache alone
            await partition.save_producers()
            if isinstance(partition, Partition):
                await partition.lake_end.leave()

    async def _check_server(self) -> None:
        version = self.link.server.get("valkey_version") or self.link.server.get("redis_version", "0")
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_REDIS:
            raise StoreRefused(f"{self.link.address} is Redis {version}; 6.2 is the oldest that works")
        memory = parse_info(await self.link.call("INFO", "memory"))
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction" and memory.get("maxmemory") != "0" and not self.options.allow_eviction:
            raise StoreRefused(
                f"{self.link.address} evicts keys when it is full (maxmemory-policy {policy}) and would lose records; "
                "set it to noeviction, or start with --allow-eviction if you accept that"
            )

    # -- partitions ---------------------------------------------------------------------------------------------

    def known_partition(self, topic_id: bytes, number: int) -> AnyPartition | None:
        """The partition, if this node has read it before."""
        return self._partitions.get((topic_id, number))

    async def partition(self, topic: Topic, number: int) -> AnyPartition:
        """The partition, read from the store at its first use."""
        key = (topic.uuid, number)
        if (known := self._partitions.get(key)) is not None:
            return known
        if (task := self._opening.get(key)) is None:
            task = self._opening[key] = asyncio.create_task(
                self._open(topic, number), name=f"open {topic.name}-{number}"
            )
        return await asyncio.shield(task)

    async def _open(self, topic: Topic, number: int) -> AnyPartition:
        key = (topic.uuid, number)
        try:
            kind = StreamPartition if is_stream(topic.configs) else Partition
            partition = kind(self, topic, number)
            await partition.confirm()
            if topic.uuid not in self.catalogue.by_uuid:
                raise PartitionGone(repr(partition))
            self._partitions[key] = partition
            return partition
        finally:
            del self._opening[key]

    def forget(self, topic: Topic) -> None:
        """Drops what is known of a deleted topic and lets its long polls go."""
        for number in range(topic.partitions):
            if (partition := self._partitions.pop((topic.uuid, number), None)) is not None:
                partition.vanish()

    # -- small things that the rooms share ----------------------------------------------------------------------

    def now_ms(self) -> int:
        """The wall clock, as records carry it."""
        return time.time_ns() // 1_000_000

    def post(self, *arguments: Argument) -> None:
        """Sends a command whose loss costs nothing but work."""
        try:
            self.link.send(*arguments).add_done_callback(lambda reply: reply.exception())
        except StoreError:
            return

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs something in the background until the store is closed; trouble with Redis ends it quietly."""

        name = getattr(work, "__qualname__", "background")

        async def guarded() -> None:
            try:
                await work
            except StoreError as error:
                log.info("background work was cut short", extra={"work": name, "why": str(error)})
            except Exception:
                log.exception("background work failed", extra={"work": name})

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began

    def count_event(self, name: str, number: int) -> None:
        """Counts what people should see: gaps, restored entries."""
        self.events[name] += number

    def note_trouble(self, error: RedisError) -> None:
        """Learns from a refusal before the next look at the memory does."""
        if error.kind == "OOM":
            self._set_memory_full(True, "Redis refuses writes")
        elif error.kind != self._told_kind:
            self._told_kind = error.kind
            log.error("redis refuses appends", extra={"why": str(error)})

    async def _upkeep(self) -> None:
        """Once a second: the lease, the catalogue, the memory."""
        while True:
            await asyncio.sleep(_UPKEEP_EVERY_S)
            try:
                await self.nodes.renew()
                await self.catalogue.refresh()
                await self._look_at_memory()
                if self._restored_timeline != self.link.timeline and not self._is_restoring:
                    self.spawn(self._restore_led())
                self._told_kind = ""
            except NodeIdTaken as error:
                log.error("this node has lost its id", extra={"why": str(error)})
            except StoreError as error:
                log.debug("upkeep has to wait", extra={"why": str(error)})
            except Exception:
                log.exception("upkeep failed")

    async def _restore_led(self) -> None:
        """Gives a store that went back in time what it lost, before anybody asks: the cache may be gone by then."""
        timeline, self._is_restoring = self.link.timeline, True
        try:
            for partition in list(self._partitions.values()):
                if self.nodes.leader(partition.topic.uuid, partition.number) == self.nodes.me:
                    with contextlib.suppress(PartitionGone):
                        await partition.confirm()
            self._restored_timeline = timeline
        finally:
            self._is_restoring = False

    def _forget_deleted(self) -> None:
        for partition in list(self._partitions.values()):
            if partition.topic.uuid not in self.catalogue.by_uuid:
                self.forget(partition.topic)

    async def _look_at_memory(self) -> None:
        facts = parse_info(await self.link.call("INFO", "memory"))
        limit, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
        self.memory_percent = used * 100 // limit if limit else 0
        mark = limit * self.options.memory_high_mark_percent // 100
        self._set_memory_full(bool(limit) and used >= mark, f"{used >> 20} MiB used of {limit >> 20} MiB")

    def _set_memory_full(self, full: bool, why: str) -> None:
        if full and not self.memory_is_full:
            log.error(
                "the store is nearly full: produces are refused until records are deleted or maxmemory is raised",
                extra={"why": why},
            )
        elif self.memory_is_full and not full:
            log.warning("the store has room again", extra={"why": why})
        self.memory_is_full = full
