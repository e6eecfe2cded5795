"""One organisation in the store: its topics with their partitions, and its configs.

Organisations share nothing but servers and nodes. Each has its own catalogue and keys, so two can use the same topic
names; with one organisation in hand another's topics cannot be reached, not even by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.store.cluster.catalogue import Catalogue, Topic
from headrace.store.cluster.configs import Configs
from headrace.store.cluster.shared_hash import SharedHash
from headrace.store.cold.standing import Standing, standing_of
from headrace.store.log.elsewhere import NotTakenUp, append_elsewhere
from headrace.store.log.partition import LogPartition
from headrace.store.partition.base import Partition
from headrace.store.partition.context import PartitionContext
from headrace.store.redis.errors import PartitionGone
from headrace.store.shared_work import retrieve
from headrace.store.stream.partition import StreamPartition
from headrace.store.takeover import Takeover

if TYPE_CHECKING:
    from headrace.store.store import Store


_LOOKED_AT_ONCE = 256


class Organisation:
    """One tenant."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.keys = store.keys.of(name)
        self.catalogue = Catalogue(store.topology, self.keys, store.name, store.clock)
        self.configs = Configs(store.topology, self.keys, store.clock)
        self.catalogue.on_gone = self.forget
        self._store = store
        self.opened: dict[tuple[bytes, int], Partition] = {}
        """The partitions that this node has loaded, by topic id and number. Read directly: every request does."""
        self._opening: dict[tuple[bytes, int], asyncio.Task[Partition]] = {}
        self.context = PartitionContext(
            slot_of=store.topology.slot_of,
            outlook_of=store.outlook_of,
            clock=store.clock,
            options=store.options,
            nodes=store.nodes,
            past_leaders=store.past_leaders,
            catalogue=self.catalogue,
            keys=self.keys,
            policies=store.policies,
            tails=store.tails,
            ahead=store.ahead,
            unpacking=store.unpacking,
            process=store.name,
            events=store.events,
            cold=lambda: store.cold,
            end_of_turn=store.end_of_turn,
            spawn=store.spawn,
            replicas_of=store.replicas.wanted,
            announce=store.announcements.appended,
            watch=store.stream_watch.add,
        )
        """The context for its partitions."""
        self.takeover = Takeover(store, self)

    async def load(self) -> None:
        """Reads topics and configs."""
        await self.catalogue.load()
        await self.configs.load()

    @property
    def is_loaded(self) -> bool:
        """Whether topics and configs were read from the server that answers now."""
        return self.catalogue.is_sure and self.configs.is_sure

    @property
    def shared(self) -> tuple[SharedHash, ...]:
        """The hashes that other nodes may change."""
        return self.catalogue, self.configs

    # -- partitions ---------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterable[Partition]:
        """The partitions that this node has loaded."""
        return list(self.opened.values())

    @property
    def open_count(self) -> int:
        """How many of them there are."""
        return len(self.opened)

    async def partition(self, topic: Topic, number: int) -> Partition:
        """The partition, read from the store at its first use."""
        key = (topic.uuid, number)
        if (known := self.opened.get(key)) is not None:
            return known
        if (task := self._opening.get(key)) is None:
            task = self._opening[key] = asyncio.create_task(
                self._open(topic, number), name=f"open {topic.name}-{number}"
            )
            task.add_done_callback(retrieve)
        return await asyncio.shield(task)

    async def _open(self, topic: Topic, number: int) -> Partition:
        key = (topic.uuid, number)
        try:
            kind = StreamPartition if topic.is_stream else LogPartition
            partition = kind(self.context, topic, number)
            await partition.confirm()
            if topic.uuid not in self.catalogue.by_uuid:
                raise PartitionGone(repr(partition))
            self.opened[key] = partition
            return partition
        finally:
            del self._opening[key]

    async def append_elsewhere(
        self, topic: Topic, number: int, batch: bytes, ask: Callable[[], Awaitable[None]]
    ) -> None:
        """Appends a batch of the broker's own to a partition that another node leads; `ask` raises if it must not."""
        try:
            await append_elsewhere(self.context, topic, number, batch, ask)
        except NotTakenUp:
            self._store.announcements.appended_to(topic.id, number)  # its leader may not have opened it
            raise
        self._store.announcements.appended_to(topic.id, number)

    async def without_entries(self, topic: Topic, numbers: Sequence[int]) -> set[int]:
        """The empty partitions of a topic, found without opening them."""
        empty: set[int] = set()
        for at in range(0, len(numbers), _LOOKED_AT_ONCE):
            some = numbers[at : at + _LOOKED_AT_ONCE]
            lengths = await self._store.topology.call_each(
                ("XLEN", topic.keys(self.keys, number).log) for number in some
            )
            empty.update(number for number, length in zip(some, lengths, strict=True) if not length)
        return empty

    async def standing(self, topic: Topic) -> dict[int, Standing]:
        """The tiering state of a topic's partitions, by number."""
        return await standing_of(self._store, self.keys, topic)

    def close(self) -> None:
        """The organisation was deleted: stops serving it."""
        for topic in list(self.catalogue.by_name.values()):
            self.forget(topic)

    def forget(self, topic: Topic) -> None:
        """Drops the cached state of a deleted topic and ends its long polls."""
        self._store.policies.forget(topic)
        for number in range(topic.partitions):
            if (partition := self.opened.pop((topic.uuid, number), None)) is not None:
                partition.vanish()
