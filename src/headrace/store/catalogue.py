"""The topics: what exists, with which id, partitions and configs.

One hash in Redis holds a record per topic, and a version that rises with each change. Every node keeps a copy: its
own changes go in at once, other nodes' are seen by the version, which costs one HGET. A topic enters the catalogue
only after its partitions were made, and leaves it before they are removed; what a crash leaves half removed is listed
under `deleted` and swept at the next start.

The version tells the age of a copy, also after a flush, since the first one is taken from the clock. So if another
server than before has an older catalogue than ours, the store went back in time, and it gets ours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from headrace.store.formats import is_stream
from headrace.store.identity import from_kafka_uuid, kafka_uuid, new_id, ulid
from headrace.store.keys import Keys, PartitionKeys
from headrace.store.redis import RedisLink
from headrace.store.scripts import Scripts
from headrace.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

VERSION = ":version"
"""A field of the catalogue that no topic can be named like."""
_CREATE_AT_ONCE = 256
_ATTEMPTS = 16


class Topic(msgspec.Struct, frozen=True):
    """A topic's record in the catalogue."""

    name: str
    id: str
    partitions: int
    configs: dict[str, str] = {}
    created_ms: int = 0
    epochs: dict[int, int] = {}
    """Leader epoch per partition, where it is above 0."""

    @property
    def uuid(self) -> bytes:
        """Kafka's topic id, as it travels."""
        return from_kafka_uuid(self.id)

    @property
    def ulid(self) -> str:
        """The same id for people: `top_...`."""
        return f"top_{ulid(self.uuid)}"

    @property
    def short_id(self) -> str:
        """Enough of the id to tell two topics of one name apart."""
        return ulid(self.uuid)[-8:]

    def keys(self, keys: Keys, partition: int) -> PartitionKeys:
        """Where a partition lives."""
        name_keys = keys.stream_partition if is_stream(self.configs) else keys.partition
        return name_keys(self.name, partition, self.short_id)


class Catalogue:
    """This node's copy of the topics, and the way to change them."""

    def __init__(self, link: RedisLink, scripts: Scripts, keys: Keys) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_uuid: dict[bytes, Topic] = {}
        self.version = -1
        self.on_load: Callable[[], None] | None = None
        """Called after each reading: topics may have gone."""
        self._link = link
        self._scripts = scripts
        self._keys = keys
        self._changing = asyncio.Lock()
        self._seen_timeline = link.timeline

    async def load(self) -> None:
        """Reads all topics; a store that went back in time first gets back what it lost of them."""
        timeline = self._link.timeline
        if timeline != self._seen_timeline and self.version > 0:
            await self._write_back()
        reply = await self._link.call("HGETALL", self._keys.topics)
        rows = dict(zip(reply[::2], reply[1::2], strict=True))
        version = int(rows.pop(VERSION.encode(), 0))
        topics = [msgspec.json.decode(row, type=Topic) for row in rows.values()]
        self.by_name = {topic.name: topic for topic in topics}
        self.by_uuid = {topic.uuid: topic for topic in topics}
        self.version = version
        self._seen_timeline = timeline
        if self.on_load is not None:
            self.on_load()

    async def settle(self) -> None:
        """Sees to it that the topics are right after another server answered."""
        if self._seen_timeline != self._link.timeline:
            await self.load()

    async def _write_back(self) -> None:
        records = [part for topic in self.by_name.values() for part in (topic.name, msgspec.json.encode(topic))]
        if await self._scripts.run(
            "restore_topics", [self._keys.topics, self._keys.deleted_topics], [VERSION, self.version, *records]
        ):
            log.warning("the store had lost changes of topics: they were written again")
            await self.sweep()

    async def refresh(self) -> bool:
        """Reads again if another node changed something; says whether it did."""
        version = int(await self._link.call("HGET", self._keys.topics, VERSION) or 0)
        if version == self.version and self._seen_timeline == self._link.timeline:
            return False
        await self.load()
        return True

    async def find(self, name: str) -> Topic | None:
        """The topic; not found is said only after asking the store."""
        if (topic := self.by_name.get(name)) is None and await self.refresh():
            topic = self.by_name.get(name)
        return topic

    async def find_uuid(self, uuid: bytes) -> Topic | None:
        """The topic of an id; not found is said only after asking the store."""
        if (topic := self.by_uuid.get(uuid)) is None and await self.refresh():
            topic = self.by_uuid.get(uuid)
        return topic

    async def create(self, name: str, partitions: int, configs: dict[str, str]) -> Topic:
        """Makes the partitions, then the record; TOPIC_ALREADY_EXISTS if somebody was first."""
        topic = Topic(name, kafka_uuid(new_id()), partitions, configs, time.time_ns() // 1_000_000)
        if is_stream(configs):
            await self.sweep()  # a stream of this name that is being deleted must not be taken over
        async with self._changing:
            await self._make_partitions(topic, 0, partitions)
            _, made, version = await self._link.transaction(
                ("HSETNX", self._keys.topics, VERSION, topic.created_ms),
                ("HSETNX", self._keys.topics, name, msgspec.json.encode(topic)),
                ("HINCRBY", self._keys.topics, VERSION, 1),
            )
            await self._follow(version, topic if made else None)
        if not made:
            await self._unlink(*(topic.keys(self._keys, number).all() for number in range(partitions)))
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        log.info("topic created", extra={"topic": name, "partitions": partitions, "id": topic.ulid})
        return topic

    async def _follow(self, version: int, made: Topic | None) -> None:
        """Takes in a creation of ours, and reads all topics only if others changed some too."""
        if version != self.version + 1 or self._seen_timeline != self._link.timeline:
            await self.load()
            return
        self.version = version
        if made is not None:
            self.by_name[made.name] = self.by_uuid[made.uuid] = made

    async def add_partitions(self, topic: Topic, total: int) -> None:
        """Raises the number of partitions."""
        async with self._changing:
            await self._make_partitions(topic, topic.partitions, total)
            await self._replace(topic, msgspec.structs.replace(topic, partitions=total))

    async def set_configs(self, topic: Topic, configs: dict[str, str]) -> None:
        """Replaces a topic's own configs."""
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
        """Takes the topic out of the catalogue, then removes its partitions."""
        async with self._changing:
            record = await self._scripts.run(
                "delete_topic", [self._keys.topics, self._keys.deleted_topics], [topic.name, topic.id, VERSION]
            )
            await self.load()
        if record is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' does not exist.")
        topic = msgspec.json.decode(record, type=Topic)
        await self._remove_deleted(topic)
        log.info("topic deleted", extra={"topic": topic.name, "id": topic.ulid})

    async def sweep(self) -> None:
        """Finishes the deletions that a crash cut short."""
        reply = await self._link.call("HVALS", self._keys.deleted_topics)
        for row in reply:
            await self._remove_deleted(msgspec.json.decode(row, type=Topic))

    async def _replace(self, old: Topic, new: Topic) -> None:
        if not await self._replaced(old, new):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic '{old.name}' was changed by someone else meanwhile.")

    async def _replaced(self, old: Topic, new: Topic) -> bool:
        """Writes a record over the one it was made from; false if another node was faster."""
        done = await self._scripts.run(
            "replace_topic",
            [self._keys.topics],
            [old.name, msgspec.json.encode(old), msgspec.json.encode(new), VERSION],
        )
        await self.load()
        return bool(done)

    async def _make_partitions(self, topic: Topic, first: int, total: int) -> None:
        """Makes the keys of new partitions."""
        for at in range(first, total, _CREATE_AT_ONCE):
            some = range(at, min(at + _CREATE_AT_ONCE, total))
            await asyncio.gather(*(self._make_partition(topic, partition) for partition in some))

    async def _make_partition(self, topic: Topic, partition: int, floor: int = 0) -> None:
        keys = topic.keys(self._keys, partition)
        if keys.owner:
            streams = [keys.log, keys.index, keys.exceptions]
            await self._scripts.run("make_stream", [*streams, keys.meta, keys.owner], [floor, topic.id])
        else:
            await self._scripts.run("make_partition", [keys.log, keys.index, keys.meta], [floor])

    async def remake_partition(self, topic: Topic, partition: int, floor: int) -> bool:
        """Makes keys that the store lost; false, and none made, if the topic is not in the catalogue (any more).

        It is looked up after making them too: of a topic deleted meanwhile nothing must come back to life.
        """
        await self.load()
        if topic.uuid in self.by_uuid:
            await self._make_partition(topic, partition, floor)
            await self.load()
        if topic.uuid in self.by_uuid:
            return True
        await self._link.call("UNLINK", *topic.keys(self._keys, partition).all())
        return False

    async def _remove_deleted(self, topic: Topic) -> None:
        await self._remove_keys(topic)
        await self._link.call("HDEL", self._keys.deleted_topics, topic.id)

    async def _remove_keys(self, topic: Topic) -> None:
        all_keys = [topic.keys(self._keys, number) for number in range(topic.partitions)]
        await self._unlink(*(keys.all() for keys in all_keys))
        for keys in all_keys:
            if keys.owner:
                await self._scripts.run("remove_stream", [keys.log, keys.owner], [topic.id])

    async def _unlink(self, *doomed: tuple[str, ...]) -> None:
        for at in range(0, len(doomed), _CREATE_AT_ONCE):
            await self._link.pipeline(*(("UNLINK", *keys) for keys in doomed[at : at + _CREATE_AT_ONCE]))
