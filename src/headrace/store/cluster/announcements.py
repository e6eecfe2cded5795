"""Announces appends to other nodes so that their long polls wake at once, nodes that join or leave, and topic changes.

A partition's long polls wait at its leader. While nodes come and go, two nodes may both believe that they lead it, and
a record appended through one has to reach consumers at the other. So appends are announced on a channel for one lease
after nodes came or went, and always by a node that does not lead the partition; a node that hears of a partition it has
open reads the store again. At other times nothing is announced: a PUBLISH nearly doubles the cost of a small append. A
lost announcement costs a delay, never a record.

A change of topics is answered by every node that has applied it. Whoever created or deleted a topic waits for that: a
node that still had a deleted topic would serve its records from memory as those of the next topic of that name, and
consumers would skip as many of the new ones. A node that leaves waits in the same way, but only for a moment: clients
that it sends away ask the others who leads, and must not be sent back.

It is a plain channel. In a cluster every server forwards every message, which is fine for a few, and a node may
subscribe at any server. A sharded channel would end whenever its slot moves, and needs Redis 7.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from headrace.store.cluster.identity import from_kafka_uuid, kafka_uuid
from headrace.store.partition import origin
from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.store import Store

_NO_TOPIC = f"{kafka_uuid(bytes(16))} 0"
"""Stands where an append names its partition, so that nodes of earlier versions make nothing of the message."""
_WORDS_OF_AN_APPEND = 2
_FOUND_S = 2.0
"""By then a node that hears nothing has found a change of topics in its upkeep."""
_NODES = "#nodes"
"""Stands where a change of topics names its organisation, which has no such name."""
_KNOWN_S = 0.25
"""How long a node that leaves waits for others to know it; one that hangs would be waited for in vain."""


class Announcements:
    """This node's voice and ear."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._link = store.topology.new_link("announcements", store.options.timeout_ms)
        self._applied: dict[tuple[str, int], int] = {}
        """Organisation and node -> the version of its topics that the node was last heard to have."""
        self._progress = asyncio.Event()
        """Set, and replaced, when a node is heard to have applied a change, or the live nodes changed."""

    async def start(self) -> None:
        """Begins to listen, and says that this node is there."""
        self._link.listen_to(self._store.keys.announcements, self._heard)
        self._store.nodes.on_change.append(self._go_on)
        await self._link.start()
        await self.nodes_changed()

    async def nodes_changed(self) -> None:
        """Announces that nodes came or went."""
        await self._store.link.call("PUBLISH", self._store.keys.announcements, self._store.nodes.me.id)

    async def left(self) -> None:
        """Announces that this node gave up its place; returns once the others know it, or after a moment."""
        await self.nodes_changed()
        version = self._store.clock.wall_ms()  # an answer to an earlier process of this id is none to this one
        self._post_version(_NODES, version, self._store.nodes.me.id)
        await self._until_applied(_NODES, version, _KNOWN_S)

    async def close(self) -> None:
        await self._link.close()

    def appended(self, partition: Partition) -> None:
        """Announces an append of ours, if somebody else may have readers waiting for it."""
        nodes = self._store.nodes
        if len(nodes.live) == 1 or (nodes.is_settled and origin.leads(partition)):
            return
        self.appended_to(partition.topic.id, partition.number)

    def appended_to(self, topic_id: str, number: int) -> None:
        """Announces an append, done or wanted, to a partition that another node leads, or may lead."""
        message = f"{self._store.nodes.me.id} {topic_id} {number}"
        self._store.link.post("PUBLISH", self._store.keys.announcements, message)

    async def topics_changed(self, organisation: str, version: int) -> None:
        """Announces a change of an organisation's topics; returns once every live node has applied it.

        It waits for a lease at most, or two seconds: a node that was silent for so long has lost its own and asks the
        store before it answers, or has found the change itself, in its upkeep.
        """
        nodes = self._store.nodes
        if nodes.is_alone:
            return
        self._post_version(organisation, version, nodes.me.id)
        await self._until_applied(organisation, version, max(self._store.options.node_lease_ms / 1000, _FOUND_S))

    async def _until_applied(self, organisation: str, version: int, patience_s: float) -> None:
        nodes = self._store.nodes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while any(
                    self._applied.get((organisation, node.id), -1) < version
                    for node in nodes.live
                    if node.id != nodes.me.id
                ):
                    await self._progress.wait()

    def _post_version(self, organisation: str, version: int, asker: int) -> None:
        message = f"{self._store.nodes.me.id} {_NO_TOPIC} {organisation} {version} {asker}"
        self._store.link.post("PUBLISH", self._store.keys.announcements, message)

    def _heard(self, message: bytes) -> None:
        sender, *appended = message.decode().split(" ")
        if int(sender) == self._store.nodes.me.id:
            return
        if not appended:
            self._store.spawn(self._store.nodes.look_again())
            return
        if len(appended) > _WORDS_OF_AN_APPEND:
            organisation, version, asker = appended[_WORDS_OF_AN_APPEND:]
            self._heard_version(int(sender), organisation, int(version), int(asker))
            return
        topic_id, number = from_kafka_uuid(appended[0]), int(appended[1])
        partition = self._store.known_partition(topic_id, number)
        if partition is None:
            self._take_up(topic_id, number)
            return
        is_wanted = bool(partition.watchers) or (origin.leads(partition) and not origin.is_ours(partition))
        partition.doubt()
        if is_wanted:
            self._store.spawn(_look(partition))

    def _heard_version(self, sender: int, organisation: str, version: int, asker: int) -> None:
        if asker == sender:
            self._store.spawn(self._apply(organisation, version, asker))
        elif asker == self._store.nodes.me.id:
            self._applied[organisation, sender] = max(version, self._applied.get((organisation, sender), -1))
            self._go_on()

    async def _apply(self, organisation: str, version: int, asker: int) -> None:
        """Applies a change of topics, or of the nodes, and says so."""
        if organisation == _NODES:
            if await self._forget_node(asker):
                self._post_version(organisation, version, asker)
            return
        known = self._store.organisations.get(organisation)
        if known is not None and known.catalogue.version < version:
            await known.catalogue.refresh()
        if known is None or known.catalogue.version >= version:
            self._post_version(organisation, version, asker)

    async def _forget_node(self, node_id: int) -> bool:
        """Whether a node that left is not listed any more; where a renewal is under way, that is what looks."""
        nodes = self._store.nodes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_S):
                await nodes.look_again()
                while any(node.id == node_id for node in nodes.live):
                    await self._progress.wait()
                return True
        return False

    def _go_on(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    def _take_up(self, topic_id: bytes, number: int) -> None:
        """Opens a partition that this node leads: until then others append nothing to a log of an earlier server."""
        for organisation in self._store.organisations.values():
            topic = organisation.catalogue.by_uuid.get(topic_id)
            if topic is not None and number < topic.partitions and self._store.nodes.leads(topic, number):
                self._store.spawn(organisation.partition(topic, number))


async def _look(partition: Partition) -> None:
    try:
        await partition.confirm()
    except StoreError:
        partition.tell_watchers()
