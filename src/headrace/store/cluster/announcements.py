"""Announces appends to other nodes so that their long polls wake at once, and nodes that join or leave.

A partition's long polls wait at its leader. While nodes come and go, two nodes may both believe that they lead it, and
a record appended through one has to reach consumers at the other. So appends are announced on a channel for one lease
after nodes came or went, and always by a node that does not lead the partition; a node that hears of a partition it has
open reads the store again. At other times nothing is announced: a PUBLISH nearly doubles the cost of a small append. A
lost announcement costs a delay, never a record.

It is a plain channel. In a cluster every server forwards every message, which is fine for a few, and a node may
subscribe at any server. A sharded channel would end whenever its slot moves, and needs Redis 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.store.cluster.identity import from_kafka_uuid
from headrace.store.partition import origin
from headrace.store.redis.errors import StoreError

if TYPE_CHECKING:
    from headrace.store.partition.base import Partition
    from headrace.store.store import Store


class Announcements:
    """This node's voice and ear."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._link = store.topology.new_link("announcements", store.options.timeout_ms)

    async def start(self) -> None:
        """Begins to listen, and says that this node is there."""
        self._link.listen_to(self._store.keys.announcements, self._heard)
        await self._link.start()
        await self.nodes_changed()

    async def nodes_changed(self) -> None:
        """Announces that nodes came or went."""
        await self._store.link.call("PUBLISH", self._store.keys.announcements, self._store.nodes.me.id)

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

    def _heard(self, message: bytes) -> None:
        sender, *appended = message.decode().split(" ")
        if int(sender) == self._store.nodes.me.id:
            return
        if not appended:
            self._store.spawn(self._store.nodes.look_again())
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
