"""The topic catalogue: names, ids, partitions and configs.

One hash in Redis holds a record per topic, and every node caches it (`shared_hash.py`). A topic enters the catalogue
only after its partitions exist, and leaves it before they are removed. Deletions are listed under `deleted` until they
are complete; one that was cut short is finished by any node, in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

from headrace.clock import Clock
from headrace.store.cluster.identity import from_kafka_uuid, kafka_uuid, new_id, ulid
from headrace.store.cluster.shared_hash import VERSION, SharedHash
from headrace.store.keys import Keys, PartitionKeys
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.errors import StoreError
from headrace.store.redis.link import Argument
from headrace.store.redis.topology import Topology
from headrace.store.topic_configs.policy import is_stream
from headrace.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

_CREATE_AT_ONCE = 256
_ATTEMPTS = 16


class Topic(msgspec.Struct, frozen=True, dict=True):
    """A topic's record in the catalogue."""

    name: str
    id: str
    partitions: int
    configs: dict[str, str] = {}
    created_ms: int = 0
    epochs: dict[int, int] = {}
    """Leader epoch per partition, where it is above 0."""
    copies: int | msgspec.UnsetType = msgspec.UNSET
    """Replication factor, where it is above 1. What is not set is not written, since records are compared as bytes."""
    assignments: dict[int, list[int]] | msgspec.UnsetType = msgspec.UNSET
    """Node ids per partition, where its replicas were chosen by hand; the first is to lead."""

    @property
    def replication_factor(self) -> int:
        """How many nodes a partition is shown on, if there are as many."""
        return self.copies or 1

    def assigned(self, partition: int) -> list[int]:
        """The nodes that a partition was given by hand."""
        return self.assignments.get(partition, []) if self.assignments else []

    @cached_property
    def uuid(self) -> bytes:
        """Kafka's topic id, as it travels; every request about a partition asks for it."""
        return from_kafka_uuid(self.id)

    @property
    def ulid(self) -> str:
        """The same id for people: `top_...`."""
        return f"top_{ulid(self.uuid)}"

    @property
    def short_id(self) -> str:
        """Enough of the id to tell two topics of one name apart."""
        return ulid(self.uuid)[-8:]

    @property
    def is_stream(self) -> bool:
        """Whether it keeps one entry per record."""
        return is_stream(self.configs)

    def keys(self, keys: Keys, partition: int) -> PartitionKeys:
        """Where a partition lives."""
        name_keys = keys.stream_partition if self.is_stream else keys.partition
        return name_keys(self.name, partition, self.short_id)


class Placing(NamedTuple):
    """On how many nodes a topic's partitions are shown, and which ones where they were chosen by hand."""

    replication_factor: int = 1
    assignments: dict[int, list[int]] = {}


ANYWHERE = Placing()


def _placed(topic: Topic, placing: Placing) -> Topic:
    copies = placing.replication_factor if placing.replication_factor > 1 else msgspec.UNSET
    return msgspec.structs.replace(topic, copies=copies, assignments=placing.assignments or msgspec.UNSET)


def _joined(ours: bytes, stored: bytes | None) -> bytes:
    """Our record of a topic, merged with newer values of the fields that only grow."""
    topic, other = msgspec.json.decode(ours, type=Topic), msgspec.json.decode(stored, type=Topic) if stored else None
    if other is None or other.id != topic.id:
        return ours
    epochs = {at: max(topic.epochs.get(at, 0), other.epochs.get(at, 0)) for at in topic.epochs | other.epochs}
    partitions = max(topic.partitions, other.partitions)
    return msgspec.json.encode(msgspec.structs.replace(topic, epochs=epochs, partitions=partitions))


class Catalogue(SharedHash):
    """This node's copy of the topics, and the way to change them."""

    def __init__(self, topology: Topology, keys: Keys, node_name: str, clock: Clock) -> None:
        super().__init__(topology, keys.topics, clock)
        self._topology = topology
        self.by_name: dict[str, Topic] = {}
        self.by_uuid: dict[bytes, Topic] = {}
        self.on_gone: Callable[[Topic], None] | None = None
        """Called for each topic that is seen to have been deleted."""
        self._keys = keys
        self._node_name = node_name
        self._changing = asyncio.Lock()
        self.must_sweep = True
        """Whether there may be deletions that were cut short: at the start, and after any change."""
        self._made: dict[bytes, range] = {}
        """The partitions that this process made, by topic."""

    def _changed(self, changed: Mapping[str, bytes | None]) -> None:
        self.must_sweep = True  # also if nothing is new to us: a topic may have come and gone since the last look
        topics = {name: row and msgspec.json.decode(row, type=Topic) for name, row in changed.items()}
        for name, topic in topics.items():
            before = self.by_name.pop(name, None)
            if before is not None:
                del self.by_uuid[before.uuid]
            if topic:
                self.by_name[name] = self.by_uuid[topic.uuid] = topic
            if before is not None and before.uuid not in self.by_uuid:
                self._made.pop(before.uuid, None)
                if self.on_gone is not None:
                    self.on_gone(before)

    async def _write_back(self, copy: list[Argument]) -> bool:
        written = -1
        while written < 0:  # what another node raised since is in the store, and stays
            reply = await self._link.call("HGETALL", self._keys.topics)
            stored = {field.decode(): row for field, row in zip(reply[::2], reply[1::2], strict=True)}
            joined = [part for name, row in self.rows.items() for part in (name, _joined(row, stored.get(name)))]
            written = await self._scripts.run(
                "restore_topics",
                [*self._both_keys, self._keys.deleted_topics],
                [*copy[:2], stored.get(VERSION, b""), *joined],
            )
        if written:
            log.warning("the store had lost topic changes; they were written again")
        return bool(written)

    async def find(self, name: str) -> Topic | None:
        """The topic; not found is said only after asking the store."""
        if (topic := self.by_name.get(name)) is None:
            await self.refresh()  # that nothing is new may mean that somebody else took it in meanwhile
            topic = self.by_name.get(name)
        return topic

    async def find_uuid(self, uuid: bytes) -> Topic | None:
        """The topic of an id; not found is said only after asking the store."""
        if (topic := self.by_uuid.get(uuid)) is None:
            await self.refresh()
            topic = self.by_uuid.get(uuid)
        return topic

    async def create(self, name: str, partitions: int, configs: dict[str, str], placing: Placing = ANYWHERE) -> Topic:
        """Creates the partitions, then the record; TOPIC_ALREADY_EXISTS if another node was first.

        What is left of a deleted topic of this name goes first. A node that has not heard of the deletion would go on
        to append to its log, and to acknowledge that to whoever means the new topic; a stream would be taken over.
        """
        now_ms = self._clock.wall_ms()
        topic = _placed(Topic(name, kafka_uuid(new_id(now_ms)), partitions, configs, now_ms), placing)
        await self.check_copies()
        try:
            await self.sweep(name)
        except NotConfirmed as error:  # of the deletion: of this topic nothing was made
            why = f"Topic '{name}' was deleted, which too few replicas know of."
            raise StoreError(ErrorCode.NOT_ENOUGH_REPLICAS, why) from error
        async with self._changing:
            await self._make_partitions(topic, 0, partitions)
            if name in self.rows:
                await self.refresh()
            made = name not in self.rows and await self.change(name, msgspec.json.encode(topic))
        if not made:
            self._made.pop(topic.uuid, None)
            await self._unlink(*(topic.keys(self._keys, number).all() for number in range(partitions)))
            await self._give_back(topic)
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        log.info("topic created", extra={"topic": name, "partitions": partitions, "id": topic.ulid})
        return topic

    async def add_partitions(self, topic: Topic, total: int, assignments: dict[int, list[int]] | None = None) -> None:
        """Raises the number of partitions."""
        await self.check_copies()
        async with self._changing:
            await self._make_partitions(topic, topic.partitions, total)
            placing = Placing(topic.replication_factor, {**(topic.assignments or {}), **(assignments or {})})
            await self._replace(topic, _placed(msgspec.structs.replace(topic, partitions=total), placing))

    async def set_configs(self, topic: Topic, configs: dict[str, str]) -> None:
        """Replaces a topic's own configs."""
        await self.check_copies()
        async with self._changing:
            await self._replace(topic, msgspec.structs.replace(topic, configs=configs))

    async def set_epoch(self, topic: Topic, partition: int, epoch: int) -> None:
        """Notes a higher leader epoch, for all nodes' metadata."""
        async with self._changing:
            for _ in range(_ATTEMPTS):
                current = self.by_uuid.get(topic.uuid)
                if current is None or current.epochs.get(partition, 0) >= epoch:
                    return
                epochs = {**current.epochs, partition: epoch}
                if await self._replaced(current, msgspec.structs.replace(current, epochs=epochs)):
                    return

    async def delete(self, topic: Topic) -> None:
        """Takes the topic out of the catalogue, then removes its partitions.

        Not before replicas know it: one that takes over would have the topic again, without its records.
        """
        await self.check_copies()
        async with self._changing:
            keys = [*self._both_keys, self._keys.deleted_topics]
            sent_to = self.slot.place
            reply = await self._scripts.run("delete_topic", keys, [VERSION, topic.name, topic.id])
            place = await self._follow(sent_to, 0 if reply is None else reply[0], {topic.name: None})
        if reply is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' does not exist.")
        await self._copied.confirm(self.slot, place, self.key)
        try:
            await self._remove_deleted(msgspec.json.decode(reply[1], type=Topic))
        except StoreError as error:  # it is deleted: a client that were told to retry would find no such topic
            self.must_sweep = True
            log.info("the rest of a deletion is postponed", extra={"topic": topic.name, "why": str(error)})

    async def finish_deletions(self) -> None:
        """Finishes what was cut short, as soon as the store allows it; the next upkeep tries again."""
        try:
            await self.sweep()
        except StoreError as error:
            log.debug("finishing deletions is postponed", extra={"why": str(error)})

    async def sweep(self, name: str | None = None) -> None:
        """Finishes the deletions that a crash, too few replicas or a server that was away cut short; or one name's."""
        self.must_sweep = self.must_sweep and name is not None
        try:
            place = self.slot.place
            rows = await self._link.call("HVALS", self._keys.deleted_topics)
            deleted = [msgspec.json.decode(row, type=Topic) for row in rows]
            if topics := [topic for topic in deleted if name in (None, topic.name)]:
                await self._copied.confirm(self.slot, place, self.key)
            trouble: StoreError | None = None
            for topic in topics:
                try:
                    await self._remove_deleted(topic)
                except StoreError as error:  # the servers of the others may be well
                    trouble = trouble or error
            if trouble is not None:
                raise trouble
        except BaseException:
            self.must_sweep = True
            raise

    async def _replace(self, old: Topic, new: Topic) -> None:
        if not await self._replaced(old, new):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic '{old.name}' was changed concurrently.")

    async def _replaced(self, old: Topic, new: Topic) -> bool:
        """Writes a record over the one it was made from; false if another node was faster."""
        if self.by_name.get(old.name) != old:
            return False
        return await self.change(old.name, msgspec.json.encode(new))

    async def _make_partitions(self, topic: Topic, first: int, total: int) -> None:
        """Makes the keys of new partitions."""
        earlier = self._made.get(topic.uuid)
        self._made[topic.uuid] = range(earlier.start if earlier else first, total)
        for at in range(first, total, _CREATE_AT_ONCE):
            some = range(at, min(at + _CREATE_AT_ONCE, total))
            await asyncio.gather(*(self._make_partition(topic, partition) for partition in some))

    async def _make_partition(self, topic: Topic, partition: int, floor: int = 0) -> None:
        keys = topic.keys(self._keys, partition)
        slot = self._topology.slot_of(keys.log)
        origin, scripts = f"{slot.link.identity} {self._node_name}", slot.scripts
        if keys.owner:
            streams = [keys.log, keys.index, keys.exceptions]
            await scripts.run("make_stream", [*streams, keys.meta, keys.owner], [floor, topic.id, origin])
        else:
            await scripts.run("make_partition", [keys.log, keys.index, keys.meta], [floor, origin])

    async def leave_unused(self, opened: Container[tuple[bytes, int]]) -> None:
        """Notes of partitions that this process made, and has not opened, that they are as they were made.

        They count as in use from the start, in case that the store forgets that somebody opened one.
        """
        made = [(self.by_uuid[uuid], numbers) for uuid, numbers in self._made.items() if uuid in self.by_uuid]
        unused = [(topic, at) for topic, numbers in made for at in numbers if (topic.uuid, at) not in opened]
        for at in range(0, len(unused), _CREATE_AT_ONCE):
            await asyncio.gather(*(self._leave_unused(*one) for one in unused[at : at + _CREATE_AT_ONCE]))

    async def _leave_unused(self, topic: Topic, number: int) -> None:
        keys = topic.keys(self._keys, number)
        slot = self._topology.slot_of(keys.log)
        origin = f"{slot.link.identity} {self._node_name}"
        await slot.scripts.run("leave_unused", [keys.meta, keys.there, keys.log], [origin])

    async def _give_back(self, ours: Topic) -> None:
        """Streams of a topic that was first get their owner back: they would outlive it, and be the next topic's."""
        first = self.by_name.get(ours.name)
        if first is not None and first.is_stream and ours.is_stream:
            for number in range(min(ours.partitions, first.partitions)):
                await self.remake_partition(first, number, 0)

    async def remake_partition(self, topic: Topic, partition: int, floor: int) -> bool:
        """Makes keys that the store lost; false, and none made, if the topic is not in the catalogue (any more).

        It is looked up after making them too: of a topic deleted meanwhile nothing must come back to life. An older
        store may have the stream of a deleted topic of this name: it goes first, or it would be taken over.
        """
        await self.refresh()
        if topic.uuid in self.by_uuid:
            if topic.is_stream:
                await self.sweep(topic.name)
            await self._make_partition(topic, partition, floor)
            await self.refresh()
        if topic.uuid in self.by_uuid:
            return True
        await self._remove_keys(topic, range(partition, partition + 1))
        return False

    async def _remove_deleted(self, topic: Topic) -> None:
        await self._remove_keys(topic, range(topic.partitions))
        if await self._link.call("HDEL", self._keys.deleted_topics, topic.id):
            log.info("topic deleted", extra={"topic": topic.name, "id": topic.ulid})

    async def _remove_keys(self, topic: Topic, numbers: range) -> None:
        all_keys = [topic.keys(self._keys, number) for number in numbers]
        await self._unlink(*(keys.all() for keys in all_keys))
        for keys in all_keys:
            if keys.owner:
                await self._topology.slot_of(keys.log).scripts.run("remove_stream", [keys.log, keys.owner], [topic.id])

    async def _unlink(self, *doomed: tuple[str, ...]) -> None:
        for at in range(0, len(doomed), _CREATE_AT_ONCE):
            await self._topology.call_each(("UNLINK", *keys) for keys in doomed[at : at + _CREATE_AT_ONCE])
