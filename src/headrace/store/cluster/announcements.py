"""Telling other nodes of an append, so that their long polls wake at once, and of a node that comes or goes.

A partition has one leader, and its long polls wait there. But while nodes come and go two may both believe that they
lead it, and a record that came in through one has to reach the consumers at the other. So for a lease after nodes came
or went, and by a node that does not lead the partition, appends are announced on a channel; whoever hears of a
partition that it knows looks at the store again. At other times they are not: a PUBLISH nearly doubles the cost of a
small append. A node says there too that it came, goes, or found another one dead. A lost announcement costs a wait,
never a record.

The channel is a plain one. In a cluster every server hears of every message, which a few can bear, and whoever listens
may do so at any server: a sharded channel would end with each move of its slot, and needs Redis 7.
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
        """Announces an append to a partition that another node leads, or may lead."""
        message = f"{self._store.nodes.me.id} {topic_id} {number}"
        self._store.link.post("PUBLISH", self._store.keys.announcements, message)

    def _heard(self, message: bytes) -> None:
        sender, *appended = message.decode().split(" ")
        if int(sender) == self._store.nodes.me.id:
            return
        if not appended:
            self._store.spawn(self._store.nodes.refresh())
            return
        topic_id, number = appended
        partition = self._store.known_partition(from_kafka_uuid(topic_id), int(number))
        if partition is not None:
            partition.doubt()
            if partition.watchers:
                self._store.spawn(_look(partition))


async def _look(partition: Partition) -> None:
    try:
        await partition.confirm()
    except StoreError:
        partition.tell_watchers()
