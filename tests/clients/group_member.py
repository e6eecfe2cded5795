"""A member of a consumer group, with each client as its users write it: poll, process, commit.

What a test needs to know is noted as it happens: what was assigned and revoked, which records were processed, and what
the client said of commits. `work` is the loop of an ordinary consumer, in this process or in one that can be killed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

POLL_S = 0.2
PATIENT_POLL_S = 1.0
"""For kafka-python 3.0, which can forget a rebalance that a poll's time ran out on."""
MOST_AT_ONCE = 200
READ_TIMEOUT_S = 30.0


class Place(NamedTuple):
    """A record's place in its topic."""

    partition: int
    offset: int


Note = Callable[[str, Any], None]
"""Told what happens: "assigned", "revoked", "processed", "committed" or "failed", and the particulars."""


class GroupMember(ABC):
    """One consumer with `subscribe`. Settings have Kafka's names, with dots."""

    assignors: tuple[str, ...]
    """Names of the assignors that this client has."""

    def __init__(
        self,
        address: str,
        group: str,
        topic: str,
        settings: Mapping[str, Any],
        note: Note = lambda what, particulars: None,
        *,
        subscribes: bool = True,
    ) -> None:
        self.topic = topic
        self.note = note
        self.subscribes = subscribes
        self.is_open = True
        self.open({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", **settings})

    @abstractmethod
    def open(self, settings: dict[str, Any]) -> None: ...

    @abstractmethod
    def poll(self) -> list[Place]: ...

    @abstractmethod
    def commit(self) -> None:
        """Commits what was polled; raises the client's own error."""

    @abstractmethod
    def close(self) -> None: ...

    def leave(self) -> None:
        """Closes, once."""
        if self.is_open:
            self.is_open = False
            self.close()

    # Moving about

    @abstractmethod
    def assign(self, *partitions: int) -> None:
        """Takes partitions itself instead of sharing them; the group id is for its commits alone."""

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def pause(self, partition: int) -> None: ...

    @abstractmethod
    def resume(self, partition: int) -> None: ...

    @abstractmethod
    def commit_at(self, partition: int, offset: int, metadata: str) -> None: ...

    @abstractmethod
    def committed(self, partition: int) -> int | None:
        """Where the group reads on; None if it committed nothing."""

    def read(self, count: int) -> list[Place]:
        """At least so many records, or what came within a while."""
        found: list[Place] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            found += self.poll()
        return found


class ConfluentMember(GroupMember):
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def open(self, settings: dict[str, Any]) -> None:
        self._consumer = confluent_kafka.Consumer(settings)
        if not self.subscribes:
            return
        self._consumer.subscribe(
            [self.topic],
            on_assign=lambda _, places: self.note("assigned", sorted(p.partition for p in places)),
            on_revoke=lambda _, places: self.note("revoked", sorted(p.partition for p in places)),
            on_lost=lambda _, places: self.note("revoked", sorted(p.partition for p in places)),
        )

    def poll(self) -> list[Place]:
        messages = self._consumer.consume(MOST_AT_ONCE, POLL_S)
        places = [(m.partition(), m.offset()) for m in messages if m.error() is None]
        return [
            Place(partition, offset) for partition, offset in places if partition is not None and offset is not None
        ]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()

    def _at(self, partition: int, offset: int = confluent_kafka.OFFSET_INVALID) -> confluent_kafka.TopicPartition:
        return confluent_kafka.TopicPartition(self.topic, partition, offset)

    def assign(self, *partitions: int) -> None:
        self._consumer.assign([self._at(partition) for partition in partitions])

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition, offset))

    def pause(self, partition: int) -> None:
        self._consumer.pause([self._at(partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([self._at(partition)])

    def commit_at(self, partition: int, offset: int, metadata: str) -> None:
        place = confluent_kafka.TopicPartition(self.topic, partition, offset, metadata)
        self._consumer.commit(offsets=[place], asynchronous=False)

    def committed(self, partition: int) -> int | None:
        (found,) = self._consumer.committed([self._at(partition)], timeout=30)
        return found.offset if found.offset >= 0 else None


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, note: Note) -> None:
        self._note = note

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._note("assigned", sorted(p.partition for p in assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._note("revoked", sorted(p.partition for p in revoked))


class KafkaPythonMember(GroupMember):
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")
    _CLASSES = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def open(self, settings: dict[str, Any]) -> None:
        self._consumer = kafka.KafkaConsumer(**_with_classes(settings, self._CLASSES))
        if self.subscribes:
            self._consumer.subscribe([self.topic], listener=_KafkaPythonListener(self.note))

    def poll(self) -> list[Place]:
        found = self._consumer.poll(int(PATIENT_POLL_S * 1000), max_records=MOST_AT_ONCE)
        return [Place(r.partition, r.offset) for records in found.values() for r in records]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()

    def _at(self, partition: int) -> Any:
        return kafka.TopicPartition(self.topic, partition)

    def assign(self, *partitions: int) -> None:
        self._consumer.assign([self._at(partition) for partition in partitions])

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._at(partition), offset)

    def pause(self, partition: int) -> None:
        self._consumer.pause(self._at(partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(self._at(partition))

    def commit_at(self, partition: int, offset: int, metadata: str) -> None:
        self._consumer.commit({self._at(partition): kafka.OffsetAndMetadata(offset, metadata, -1)})

    def committed(self, partition: int) -> int | None:
        found: int | None = self._consumer.committed(self._at(partition))
        return found


class _AioListener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, note: Note) -> None:
        self._note = note

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._note("assigned", sorted(p.partition for p in assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._note("revoked", sorted(p.partition for p in revoked))


class AioKafkaMember(GroupMember):
    assignors = ("range", "roundrobin", "sticky")
    _CLASSES = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def open(self, settings: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._open(settings))

    async def _open(self, settings: dict[str, Any]) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(**_with_classes(settings, self._CLASSES))
        if self.subscribes:
            self._consumer.subscribe([self.topic], listener=_AioListener(self.note))
        await self._consumer.start()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _do(self, what: Callable[..., Any], *arguments: Any) -> None:
        async def do() -> None:
            what(*arguments)

        self._run(do())

    def poll(self) -> list[Place]:
        found = self._run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=MOST_AT_ONCE))
        return [Place(r.partition, r.offset) for records in found.values() for r in records]

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _at(self, partition: int) -> Any:
        return aiokafka.TopicPartition(self.topic, partition)

    def assign(self, *partitions: int) -> None:
        self._do(self._consumer.assign, [self._at(partition) for partition in partitions])

    def seek(self, partition: int, offset: int) -> None:
        self._do(self._consumer.seek, self._at(partition), offset)

    def pause(self, partition: int) -> None:
        self._do(self._consumer.pause, self._at(partition))

    def resume(self, partition: int) -> None:
        self._do(self._consumer.resume, self._at(partition))

    def commit_at(self, partition: int, offset: int, metadata: str) -> None:
        self._run(self._consumer.commit({self._at(partition): (offset, metadata)}))

    def committed(self, partition: int) -> int | None:
        found: int | None = self._run(self._consumer.committed(self._at(partition)))
        return found


def _with_classes(settings: dict[str, Any], classes: Mapping[str, type]) -> dict[str, Any]:
    """Settings as kafka-python and aiokafka spell them, assignors by their classes."""
    named = {name.replace(".", "_"): value for name, value in settings.items()}
    strategy = named.get("partition_assignment_strategy")
    if strategy is not None:
        named["partition_assignment_strategy"] = (classes[strategy],)
    return named


MEMBERS: dict[str, type[GroupMember]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}


def work(member: GroupMember, is_over: Callable[[], bool], *, commits: bool) -> None:
    """An ordinary consumer's loop: what was processed is noted before it is committed."""
    try:
        while not is_over():
            places = member.poll()
            if not places:
                continue
            member.note("processed", places)
            if commits:
                _commit(member, places)
    finally:
        member.leave()


def _commit(member: GroupMember, places: list[Place]) -> None:
    try:
        member.commit()
    except Exception as error:
        member.note("failed", f"{type(error).__name__}: {error}")
    else:
        member.note("committed", places)
