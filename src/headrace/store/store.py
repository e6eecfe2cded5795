"""The store as the broker sees it: organisations with their topics, nodes, and background upkeep.

It holds two connections to each server: one for appends and small commands, one for large replies, so that an
acknowledgement never waits behind a megabyte of somebody's Fetch; and further ones for subscriptions when needed.
Everything here is a cache of Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headrace.clock import Clock
from headrace.cold_log import ColdAway, ColdLog
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.store.cluster.announcements import Announcements
from headrace.store.cluster.identity import kafka_uuid, new_id
from headrace.store.cluster.nodes.endpoints import Node
from headrace.store.cluster.nodes.keeping import keep, stay_awake
from headrace.store.cluster.nodes.latecomers import Latecomers
from headrace.store.cluster.nodes.leases import Leases, renewal_timeout_ms
from headrace.store.cluster.nodes.neighbours import Neighbours
from headrace.store.cluster.nodes.nodes import Nodes
from headrace.store.cluster.nodes.past_leaders import PastLeaders
from headrace.store.cluster.owned.groups import GroupStore
from headrace.store.cluster.owned.transactions import TransactionStore
from headrace.store.cluster.replicas import MeantReplicas
from headrace.store.cluster.shared_hash import SharedHash, refresh_all
from headrace.store.cold.access import InTime, NoLake
from headrace.store.cold.reads import BackgroundReads
from headrace.store.confidence import Outlook, View
from headrace.store.end_of_turn import EndOfTurn
from headrace.store.keys import ClusterKeys
from headrace.store.leaving import leave_again, leave_all, leave_led
from headrace.store.options import StoreOptions
from headrace.store.organisation import Organisation
from headrace.store.partition import origin
from headrace.store.partition.ahead_room import AheadRoom
from headrace.store.partition.base import Partition
from headrace.store.partition.tail import TailCache
from headrace.store.redis.address import Address
from headrace.store.redis.errors import RedisError, StoreError
from headrace.store.redis.memory import Room
from headrace.store.redis.probe import check_commands
from headrace.store.redis.shard import Shard
from headrace.store.redis.topology import Slot, open_topology
from headrace.store.restoring import Restoring
from headrace.store.security.rows import SecurityRows
from headrace.store.security.tenants import Tenants
from headrace.store.security.usage import Usage
from headrace.store.security.users import Users
from headrace.store.starting import patiently
from headrace.store.stream.watch import StreamWatch
from headrace.store.takeover import Takeovers
from headrace.store.topic_configs.policy import TopicPolicies
from headrace.store.unpacking import Unpacking
from headrace.store.usable_memory import tail_cache_bytes
from headrace.ticks import tick

log = logging.getLogger(__name__)

_UPKEEP_EVERY_S = 1.0
_SECURITY_EVERY_S = 0.5
_CLUSTER_ID_PATIENCE_S = 3 * _UPKEEP_EVERY_S
_CLUSTER_ID_POLL_S = 0.05
_TOLD_TOPICS = 10
_LEAVE_S = 5.0
_LEAVE_UNUSED_S = 1.0


class Store:
    """Everything that lives in Redis."""

    def __init__(self, address: Address, me: Node, options: StoreOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.clock = clock or Clock()
        self.cold: ColdLog = NoLake()
        self.cold_reads = BackgroundReads(self)
        self.keys = ClusterKeys(options.prefix)
        self.topology = open_topology(address, options)
        home = self.topology.slot_of(self.keys.cluster)
        self.link, self.reads, self.scripts = home.link, home.reads, home.scripts
        """The ways to what all nodes share; partitions and groups have their own."""
        self.name = secrets.token_hex(6)
        """Identifies this process in what it writes, so that it can recognise its own writes."""
        home = self.topology.slot_of(self.keys.nodes)
        timeout_ms = renewal_timeout_ms(options)
        self.leases = Leases(self.topology.new_link("leases", timeout_ms, home), self.keys, options.node_lease_ms)
        self.nodes = Nodes(self.leases, me, self.clock, self.name, lambda: self.topology.runs)
        self.past_leaders = PastLeaders(self.nodes, self.clock)
        self.replicas = MeantReplicas(self.topology, self.keys.cluster, options)
        self._outlooks: dict[Slot, Outlook] = {}
        self.groups = GroupStore(self.topology, self.keys)
        self.transactions = TransactionStore(self.topology, self.keys)
        self.announcements = Announcements(self)
        self.neighbours = Neighbours(self.nodes, self.announcements.nodes_changed)
        self.stream_watch = StreamWatch(self)
        self.policies = TopicPolicies()
        self.topology.copied.wanted = lambda: self.policies.replicas and self.replicas.wanted(self.policies.replicas)
        self.tails = TailCache(tail_cache_bytes(options.tail_cache_bytes))
        self.ahead = AheadRoom(options.read_ahead_bytes, self.clock.monotonic_s)
        self.unpacking = Unpacking()
        self.end_of_turn = EndOfTurn()
        self.cluster_id = ""
        self.events: Counter[str] = Counter()
        self.default = Organisation(self, DEFAULT_ORGANISATION)
        """The organisation of whoever names none; the brokers' own configs are there, too."""
        self.organisations = {DEFAULT_ORGANISATION: self.default}
        self.users = Users(self.topology, self.keys.users, self.clock)
        self.acls = SecurityRows(self.topology, self.keys.acls, self.clock)
        self.quotas = SecurityRows(self.topology, self.keys.quotas, self.clock)
        self.tenants = Tenants(self)
        self.usage = Usage(self)
        self.security_tables: list[SharedHash] = [self.tenants.rows, self.users, self.acls, self.quotas]
        """The tables behind access control, refreshed at short intervals."""
        self.login_secret = b""
        """The same on every node, and known to nobody outside: for what must look random and stay the same."""
        self.takeovers = Takeovers(self)
        self.latecomers = Latecomers(self)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._restoring = Restoring(lambda: self._partitions)

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self, *, serves: bool = True) -> None:
        """Connects, checks the server, claims the node id and reads the catalogue.

        Whoever cannot answer clients yet says so, and calls `serve` as soon as it can.
        """
        try:
            await self.topology.start()
            waits = self.options.store_replicas != 0
            await patiently(lambda: check_commands(self.topology, self.options.prefix, waits=waits))
            await patiently(self.leases.start)
            await patiently(self._wait_for_cluster_id, self._keep_cluster_id, self.replicas.load)
            await patiently(self.transactions.load_continued)
            await patiently(self.latecomers.expect, lambda: self.nodes.claim("serving" if serves else "starting"))
            self.spawn(stay_awake(self.nodes, self.leases))
            self.spawn(keep(self.nodes, self.leases))  # what follows may take longer than a lease
            await patiently(self.default.load, self._load_security)
            await self.announcements.start()
        except BaseException:
            await self._end_tasks()
            await self.announcements.close()
            await self.leases.close()
            await self.topology.close()
            raise
        self.nodes.on_claim = lambda: self.spawn(self.announcements.nodes_changed())
        self.nodes.on_change.append(self._wake_moved)
        self.spawn(self._upkeep())
        self.spawn(self._follow_security())

    async def serve(self) -> None:
        """Clients are answered from now on: this node takes its share of partitions and groups."""
        await patiently(self.latecomers.wait, self.nodes.serve, self.announcements.nodes_changed)
        self.nodes.on_look = [self.neighbours.follow, self.takeovers.look]
        self.nodes.restored.checks.append(self._is_restored)
        self.neighbours.follow()

    def _is_restored(self) -> bool:
        """Whether all partitions were taken up on the server of the leases, which other links may reach later."""
        home = self.topology.slot_of(self.keys.nodes).link
        return home.is_up and home.identity == self.leases.identity and self.takeovers.are_settled

    def _wake_moved(self) -> None:
        """Ends long polls on partitions that another node leads now."""
        for partition in self._partitions:
            if partition.watchers and not origin.leads(partition):
                partition.tell_watchers()

    def plug_in(self, cold: ColdLog) -> None:
        """Sets the reader of the lake; the caller closes it."""
        self.cold = InTime(cold, self.options.cold_timeout_ms)

    def prepare_tiering(self) -> None:
        """If there are topics that need a lake, has its reader started; says it, if there is none."""
        everything = (topic for one in self.organisations.values() for topic in one.catalogue.by_name.values())
        topics = [topic.name for topic in everything if self.policies.of(topic).is_tiered]
        if topics and not isinstance(self.cold, NoLake):
            self.spawn(self._warm_up())
        elif topics:
            log.error(
                "topics have remote.storage.enable but this broker has no --lake: their old records cannot be read, "
                "and none leave Redis",
                extra={"topics": ", ".join(sorted(topics)[:_TOLD_TOPICS]), "number": len(topics)},
            )

    async def _warm_up(self) -> None:
        with contextlib.suppress(ColdAway):  # who needs it asks again, and is told
            await self.cold.check()

    async def close(self) -> None:
        """Saves snapshots for a fast start, releases the lease, disconnects."""
        await self._end_tasks()
        await self.neighbours.close()
        await self.cold_reads.close()
        self.unpacking.close()
        partitions = [partition for partition in self._partitions if not partition.is_gone]
        try:
            if self.link.is_up and self.nodes.is_leaving:
                await leave_again(partitions)
            elif self.link.is_up:
                await leave_all(partitions, _LEAVE_S)
                async with asyncio.timeout(_LEAVE_S):
                    await self.nodes.release()
                    await self.announcements.nodes_changed()
                    await self.leave_unused()
        except (StoreError, TimeoutError) as error:
            log.warning("leaving the store failed", extra={"why": str(error) or "it does not answer"})
        await self.announcements.close()
        await self.stream_watch.close()
        await self.leases.close()
        await self.topology.close()
        for partition in partitions:
            await partition.close()

    async def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hand_over(self) -> None:
        """Leaves the partitions that this node leads, and its place among the nodes; returns once the others know."""
        await leave_led(self._partitions)
        await self.nodes.release()
        await self.announcements.left()

    async def leave_unused(self) -> None:
        """Leaves the partitions that nobody used, as far as it can in a moment. No client waits for them."""
        with contextlib.suppress(TimeoutError, StoreError):  # then the next node takes a closer look
            async with asyncio.timeout(_LEAVE_UNUSED_S):
                for one in self.organisations.values():
                    await one.catalogue.leave_unused(one.opened)

    async def _wait_for_cluster_id(self) -> None:
        """A store without an id that other nodes listen on was flushed: they put the id back with their next upkeep."""
        with contextlib.suppress(TimeoutError, RedisError):  # a user's rules may forbid to ask who listens
            async with asyncio.timeout(_CLUSTER_ID_PATIENCE_S):
                while await self.link.call("HGET", self.keys.cluster, "id") is None:
                    if not await self._count_listeners():
                        return
                    await asyncio.sleep(_CLUSTER_ID_POLL_S)

    async def _count_listeners(self) -> int:
        """Listeners on the nodes' channel: each server counts its own."""
        links = [shard.link for shard in self.topology.shards if shard.link.is_up]
        found = [await link.call("PUBSUB", "NUMSUB", self.keys.announcements) for link in links]
        return sum(listeners for _, listeners in found)

    async def _keep_cluster_id(self) -> None:
        """The id is the cluster's for good: a store that was flushed gets it again."""
        mine = self.cluster_id or kafka_uuid(new_id(self.clock.wall_ms()))
        stored = await self.link.call("HGET", self.keys.cluster, "id")
        if stored is None:
            await self.link.call("HSETNX", self.keys.cluster, "id", mine)
            stored = await self.link.call("HGET", self.keys.cluster, "id") or mine.encode()
        if self.cluster_id and stored.decode() != self.cluster_id:
            log.warning("the cluster id changed", extra={"before": self.cluster_id, "now": stored.decode()})
        self.cluster_id = stored.decode()

    # -- organisations ------------------------------------------------------------------------------------------

    async def add_organisation(self, name: str) -> Organisation:
        """Loads an organisation and follows its changes from now on."""
        organisation = Organisation(self, name)
        await organisation.load()
        self.organisations[name] = organisation
        return organisation

    def known_partition(self, topic_id: bytes, number: int) -> Partition | None:
        """A partition of whatever organisation, if this node has read it before: no two have topics of one id."""
        known = (one.opened.get((topic_id, number)) for one in self.organisations.values())
        return next((partition for partition in known if partition is not None), None)

    @property
    def _partitions(self) -> list[Partition]:
        return [partition for one in self.organisations.values() for partition in one.partitions]

    @property
    def shards(self) -> list[Shard]:
        """The servers that it is spread over."""
        return self.topology.shards

    # -- what people are shown of it ----------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the store is: to Kafka's tools it is the one log directory."""
        return str(self.topology.address)

    async def room(self) -> Room | None:
        """How much it holds; None if there is no limit."""
        return await self.topology.room()

    @property
    def memory_percent(self) -> int:
        """How full its fullest server is."""
        return self.topology.memory_percent

    # -- small things that the rooms share ----------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether Redis answers."""
        return self.link.is_up

    @property
    def is_loaded(self) -> bool:
        """Whether the topics and configs of every organisation have been read."""
        return all(one.is_loaded for one in self.organisations.values())

    async def answers(self, timeout_s: float) -> bool:
        """Whether Redis answers, asked now: a link to a server that hangs looks up until its time is over."""
        return await self.topology.answers(timeout_s)

    def outlook_of(self, slot: Slot) -> Outlook:
        """The confidence in data read from a slot, valid until its view changes."""
        outlook = self._outlooks.get(slot)
        if outlook is None:
            outlook = self._outlooks[slot] = Outlook(slot.link, self.nodes)
        return outlook

    @property
    def _timeline(self) -> View:
        return View(self.topology.timeline, 0)

    def spawn(self, work: Coroutine[Any, Any, Any], then: Callable[[asyncio.Task[None]], None] | None = None) -> None:
        """Runs something in the background until the store is closed; trouble with Redis ends it quietly."""
        name = getattr(work, "__qualname__", "background")

        async def guarded() -> None:
            try:
                await work
            except StoreError as error:
                log.info("background work was cut off", extra={"work": name, "why": str(error)})
            except Exception:
                log.exception("background work failed", extra={"work": name})

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.add(task)
        for told in (self._tasks.discard, lambda _: work.close(), *([then] if then else ())):
            task.add_done_callback(told)  # work that was cancelled before it began has to be closed

    async def _upkeep(self) -> None:
        """Once a second: the cluster's id, the catalogue, the memory, deletions. The lease is kept elsewhere."""
        while True:
            await tick(_UPKEEP_EVERY_S)
            if self._restoring.is_due(self._timeline):  # first: it must not wait for a server that is away
                self.spawn(self._restoring.run(self._timeline))
            shared = [table for one in self.organisations.values() for table in one.shared]
            await asyncio.gather(
                _try("upkeep", self._keep_cluster_id()),
                _try("upkeep", refresh_all(shared)),
                _try("upkeep", self.topology.look_at_servers()),
                _try("upkeep", self.replicas.keep()),
            )
            for one in self.organisations.values():
                if one.catalogue.must_sweep:
                    self.spawn(one.catalogue.finish_deletions())

    async def _load_security(self) -> None:
        for table in self.security_tables:
            await table.load()
        await self.tenants.follow()

    async def load_login_secret(self) -> None:
        """Creates the secret, or loads the stored one. Only needed with logins."""
        key = self.keys.login_secret
        link = self.topology.slot_of(key).link
        await link.call("SET", key, secrets.token_hex(32), "NX")
        self.login_secret = await link.call("GET", key)

    async def _follow_security(self) -> None:
        """Applies other nodes' changes, well within a second, also of a node that this one has not noticed yet."""
        while True:
            await tick(_SECURITY_EVERY_S)
            await _try("reading users and ACLs", refresh_all(self.security_tables))
            await _try("reading users and ACLs", self.tenants.follow())


async def _try(what: str, step: Awaitable[object]) -> None:
    """A step of work that is repeated: one that fails does not keep the others back, whose servers may be well."""
    try:
        await step
    except StoreError as error:
        log.debug(f"{what} is postponed", extra={"why": str(error)})
    except Exception:
        log.exception(f"{what} failed")
