"""Background work of a broker: retention, compaction, moving records to the lake.

It covers the topics of every organisation, on behalf of the broker itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.broker.access import Access
from headrace.broker.hanging import Hanging
from headrace.broker.network.flow import Turns
from headrace.broker.postponed import Postponed
from headrace.broker.tiering.retention import TieredRetention
from headrace.security.acls import Operation
from headrace.security.caller import system_caller
from headrace.store.redis.errors import PartitionGone
from headrace.ticks import tick
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.partition.base import Partition
    from headrace.store.topic_configs.policy import TopicPolicy

log = logging.getLogger(__name__)

_COUNT_EVERY_S = 2.0


class Untouched:
    """Unused partitions: not opened, and checked only once while no other node can write to them.

    Redis code can write to those of the format `stream` at any time: how long they are is asked for each time.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._term = -1
        self._empty: set[tuple[str, int]] = set()
        self._unused: dict[str, Topic] = {}

    def has_all_of(self, topic: Topic) -> bool:
        """Whether all partitions of a topic that this node leads were found empty, and none was opened since."""
        self._follow_term()
        return self._unused.get(topic.id) is topic

    def opened(self, partitions: Iterable[Partition]) -> None:
        """Told which partitions are in use by now."""
        for partition in partitions:
            self._unused.pop(partition.topic.id, None)

    def forget_deleted(self, topics: int) -> None:
        """Looks at everything anew if most of what is remembered is of topics that are gone."""
        if len(self._unused) > 2 * topics:
            self._term = -1

    def _follow_term(self) -> int:
        term = self._broker.store.nodes.term
        if self._term != term:
            self._term = term
            self._empty.clear()
            self._unused.clear()
        return term

    async def leave_out(self, access: Access, topic: Topic, numbers: list[int]) -> list[int]:
        """The partitions that are left without those."""
        term = self._follow_term()
        unread = [number for number in numbers if access.known_partition(topic, number) is None]
        unsure = [number for number in unread if topic.is_stream or (topic.id, number) not in self._empty]
        empty = await access.untouched(topic, unsure) if unsure else set()
        if term == self._term and not topic.is_stream:
            self._empty.update((topic.id, number) for number in empty)
        skipped = empty | (set(unread) - set(unsure))
        if len(skipped) == len(numbers) and term == self._term and not topic.is_stream:
            self._unused[topic.id] = topic
        return [number for number in numbers if number not in skipped]


class ChosenTopics:
    """The topics of an organisation with a policy, found anew only when a topic or a default has changed."""

    def __init__(self, broker: Broker, has_it: Callable[[TopicPolicy], bool]) -> None:
        self._broker = broker
        self._has_it = has_it
        self._known: dict[str, tuple[tuple[int, int], list[Topic]]] = {}

    async def of(self, access: Access) -> list[Topic]:
        organisation, moment = access.caller.organisation, self._moment(access)
        known = self._known.get(organisation)
        if known is not None and known[0] == moment:
            return known[1]
        found, turns = [], Turns()
        for topic in access.topics(Operation.DESCRIBE):
            if turns.is_over():
                await asyncio.sleep(0)
            if self._has_it(self._broker.policy(topic)):
                found.append(topic)
        self._known[organisation] = moment, found  # as of before: what changed meanwhile is seen the next time
        return found

    def _moment(self, access: Access) -> tuple[int, int]:
        return access.topics_version, self._broker.store.policies.revision


class Background:
    """The tasks of one node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tiered_retention = TieredRetention(broker.store)
        self._retention_postponed = Postponed("retention", broker.store.events)
        self._untouched = Untouched(broker)
        self._compacted = ChosenTopics(broker, lambda policy: policy.compacts)
        self._tiered = ChosenTopics(broker, lambda policy: policy.is_tiered)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._look_after_old_records(), name="retention"),
            asyncio.create_task(self._leave_records_to_lake(), name="tiering"),
            asyncio.create_task(self._look_after_compacted(), name="compaction"),
            asyncio.create_task(self._count_stored(), name="usage"),
            asyncio.create_task(Hanging(self._broker).run(), name="hanging transactions"),
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _pause(self) -> None:
        await asyncio.sleep(self._broker.options.retention_check_interval_ms / 1000)

    async def _compaction_pause(self) -> None:
        await asyncio.sleep(self._broker.options.compaction_check_interval_ms / 1000)

    def _everybody(self) -> list[Access]:
        return [Access(self._broker, system_caller(name)) for name in self._broker.store.organisations]

    async def _look_after_compacted(self) -> None:
        """Compacts the partitions that this node leads, one after the other; of other topics none is looked at."""
        postponed = Postponed("compaction", self._broker.store.events)
        while True:
            await self._compaction_pause()
            for access, topic in await self._topics_with(self._compacted):
                for number in self._broker.led(topic):
                    try:
                        await self._compact(access, topic, number)
                    except KafkaError as error:
                        postponed.by(error, partition=f"{topic.name}-{number}")
                    except Exception:
                        log.exception("compaction failed", extra={"partition": f"{topic.name}-{number}"})
            postponed.round_ended()

    async def _topics_with(self, chosen: ChosenTopics) -> list[tuple[Access, Topic]]:
        return [(access, topic) for access in self._everybody() for topic in await chosen.of(access)]

    async def _look_after_old_records(self) -> None:
        """The retention of topics that are not tiered."""
        while True:
            await self._pause()
            everybody = self._everybody()
            self._untouched.forget_deleted(sum(len(access.topics(Operation.DESCRIBE)) for access in everybody))
            for access in everybody:
                await self._retain(access)
            self._retention_postponed.round_ended()

    async def _retain(self, access: Access) -> None:
        """One round for the topics of an organisation; those that nobody uses are passed over."""
        self._untouched.opened(access.open_partitions())
        turns = Turns()
        for topic in access.topics(Operation.DESCRIBE):
            if self._untouched.has_all_of(topic):
                if turns.is_over():
                    await asyncio.sleep(0)
                continue
            await asyncio.sleep(0)
            try:
                await self._apply_retention(access, topic)
            except KafkaError as error:
                self._retention_postponed.by(error, topic=topic.name)
            except Exception:
                log.exception("retention failed", extra={"topic": topic.name})

    async def _apply_retention(self, access: Access, topic: Topic) -> None:
        policy = self._broker.policy(topic)
        if not policy.deletes or policy.is_tiered:
            return
        numbers = list(self._broker.led(topic))
        if not policy.compacts:  # a compacted log has records elsewhere, too
            numbers = await self._untouched.leave_out(access, topic, numbers)
        for number in numbers:
            try:
                partition = await access.partition(topic, number)
                await partition.confirm()
                policy = partition.policy  # as it is now: a round takes long where there are many topics
                if policy.deletes and not policy.is_tiered:
                    await partition.enforce_retention(policy.retention_ms, policy.retention_bytes)
            except KafkaError as error:
                self._retention_postponed.by(error, partition=f"{topic.name}-{number}")

    async def _compact(self, access: Access, topic: Topic, number: int) -> None:
        partition = await access.partition(topic, number)
        policy = partition.policy  # as it is now, not as it was when the round began
        if policy.compacts:
            await partition.compact_if_due(policy.compaction, self._broker.options.store_wait_ms)

    async def _count_stored(self) -> None:
        """Adds up the stored bytes of organisations that have a limit."""
        store = self._broker.store
        postponed = Postponed("counting stored bytes", store.events)
        while True:
            await tick(_COUNT_EVERY_S)
            try:
                led_bytes = {}
                for name in store.tenants.names:
                    if store.tenants.limits(name).bytes_stored is not None:
                        access = Access(self._broker, system_caller(name))
                        led_bytes[name] = await self._led_bytes(access, postponed)
                await store.usage.tell(led_bytes)
            except KafkaError as error:
                postponed.by(error)
            except Exception:
                log.exception("counting stored bytes failed")
            postponed.round_ended()

    async def _led_bytes(self, access: Access, postponed: Postponed) -> int:
        """What an organisation has in the partitions that this node leads, as far as they can be read now."""
        total = 0
        for topic in access.topics(Operation.DESCRIBE):
            for number in self._broker.led(topic):
                try:
                    total += (await access.partition(topic, number)).size_bytes
                except PartitionGone:
                    continue
                except KafkaError as error:
                    postponed.by(error, partition=f"{topic.name}-{number}")
        return total

    async def _leave_records_to_lake(self) -> None:
        """The retention of tiered topics, in rounds of its own: a slow lake must not hold up that of the others."""
        while True:
            await self._pause()
            for access, topic in await self._topics_with(self._tiered):
                if self._broker.policy(topic).is_tiered:  # as it is now: a round takes long
                    await self._tiered_retention.apply(access, topic, list(self._broker.led(topic)))
            self._tiered_retention.postponed.round_ended()
