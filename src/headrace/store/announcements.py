"""Telling other nodes of an append, so that their long polls wake at once, and of a node that comes or goes.

A partition has one leader, and its long polls wait there. But while nodes come and go two may both believe that they
lead it, and a record that came in through one has to reach the consumers at the other. So with more than one node
alive every append is announced on a channel; whoever hears of a partition that it knows looks at the store again. A
node says hello there too, since one that believed itself alone announces nothing. A lost announcement costs a wait,
never a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.store.errors import StoreError
from headrace.store.identity import from_kafka_uuid
from headrace.store.redis import RedisLink

if TYPE_CHECKING:
    from headrace.store.partitions import AnyPartition
    from headrace.store.store import Store


class Announcements:
    """This node's voice and ear."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._link = RedisLink(store.link.address, "announcements", store.options.timeout_ms)

    async def start(self) -> None:
        """Begins to listen, and says that this node is there."""
        await self._link.subscribe(self._store.keys.announcements, self._heard)
        await self._link.start()
        await self.nodes_changed()

    async def nodes_changed(self) -> None:
        """Announces that this node came or goes."""
        await self._store.link.call("PUBLISH", self._store.keys.announcements, self._store.nodes.me.id)

    async def close(self) -> None:
        await self._link.close()

    def appended(self, partition: AnyPartition) -> None:
        """Announces an append of ours, if anybody else is there."""
        if len(self._store.nodes.live) > 1:
            message = f"{self._store.nodes.me.id} {partition.topic.id} {partition.number}"
            self._store.post("PUBLISH", self._store.keys.announcements, message)

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


async def _look(partition: AnyPartition) -> None:
    try:
        await partition.confirm()
    except StoreError:
        partition.tell_watchers()
