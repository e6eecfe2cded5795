"""The broker: what the handlers share. It holds no data of its own; all of that is in the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.broker.coordinator import Coordinator
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.options import BrokerOptions
from headrace.broker.tiered_retention import TieredRetention
from headrace.broker.topic_configs import TopicPolicy, policy_of
from headrace.groups import GroupSettings
from headrace.store.catalogue import Topic
from headrace.store.errors import StoreError
from headrace.store.identity import ProducerIds
from headrace.store.partitions import AnyPartition
from headrace.store.store import Store
from headrace.store.stream_compaction import compact_if_due
from headrace.store.stream_partition import StreamPartition
from headrace.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

_POLICIES_SPARE = 100


class Broker:
    """One node."""

    def __init__(self, store: Store, options: BrokerOptions, groups: GroupSettings) -> None:
        self.store = store
        self.options = options
        self.coordinator = Coordinator(store, groups, options.offsets_retention_check_ms)
        self.fetch_sessions = FetchSessions(options.fetch_sessions_max)
        self.producer_ids = ProducerIds()
        self._tiered_retention = TieredRetention(store)
        self._policies: dict[str, tuple[Topic, TopicPolicy]] = {}
        self._upkeep: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins the background work."""
        self.coordinator.start()
        self._upkeep = [
            asyncio.create_task(self._look_after_partitions("retention", self._apply_retention), name="retention"),
            asyncio.create_task(self._leave_records_to_lake(), name="tiering"),
            asyncio.create_task(self._look_after_partitions("compaction", self._compact), name="compaction"),
        ]

    def stop(self) -> None:
        """Ends the background work."""
        self.coordinator.stop()
        for task in self._upkeep:
            task.cancel()

    def policy(self, topic: Topic) -> TopicPolicy:
        """What a topic's configs, and the broker's defaults behind them, ask for."""
        known = self._policies.get(topic.id)
        if known is None or known[0] is not topic:
            self._forget_policies()
            known = self._policies[topic.id] = (topic, policy_of(topic.configs, self.options))
        return known[1]

    def _forget_policies(self) -> None:
        """Those of deleted topics, once they are the most."""
        live = self.store.catalogue.by_uuid
        if len(self._policies) > 2 * len(live) + _POLICIES_SPARE:
            self._policies = {key: known for key, known in self._policies.items() if known[0].uuid in live}

    def leads(self, topic: Topic, number: int) -> bool:
        """Whether this node leads a partition."""
        nodes = self.store.nodes
        return nodes.leader(topic.uuid, number).id == nodes.me.id

    async def led_partition(self, topic: Topic, number: int) -> AnyPartition:
        """A partition that exists and that this node leads; the error that Kafka gives otherwise."""
        if not 0 <= number < topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {number}.")
        if not self.leads(topic, number):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Another node leads {topic.name}-{number}.")
        return self.store.known_partition(topic.uuid, number) or await self.store.partition(topic, number)

    async def find_topic(self, name: str, uuid: bytes, *, by_id: bool) -> Topic:
        """The topic that a request names, by id or by name."""
        if by_id:
            topic = await self.store.catalogue.find_uuid(uuid)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        else:
            topic = await self.store.catalogue.find(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    async def _look_after_partitions(self, what: str, work: Callable[[Topic, int], Awaitable[None]]) -> None:
        """Does something for each partition that this node leads, one after the other, again and again."""
        while True:
            await asyncio.sleep(self.options.retention_check_interval_ms / 1000)
            for topic in list(self.store.catalogue.by_name.values()):
                for number in range(topic.partitions):
                    if not self.leads(topic, number):
                        continue
                    try:
                        await work(topic, number)
                    except StoreError as error:
                        extra = {"partition": f"{topic.name}-{number}", "why": str(error)}
                        log.info(f"{what} has to wait", extra=extra)
                    except Exception:
                        log.exception(f"{what} failed", extra={"partition": f"{topic.name}-{number}"})

    async def _apply_retention(self, topic: Topic, number: int) -> None:
        policy = self.policy(topic)
        if policy.deletes and not policy.is_tiered:
            partition = await self.store.partition(topic, number)
            await partition.enforce_retention(policy.retention_ms, policy.retention_bytes)

    async def _leave_records_to_lake(self) -> None:
        """The retention of tiered topics, in rounds of its own: a slow lake must not hold up that of the others."""
        while True:
            await asyncio.sleep(self.options.retention_check_interval_ms / 1000)
            for topic in list(self.store.catalogue.by_name.values()):
                policy = self.policy(topic)
                if policy.is_tiered:
                    led = [number for number in range(topic.partitions) if self.leads(topic, number)]
                    await self._tiered_retention.apply(topic, led, policy)

    async def _compact(self, topic: Topic, number: int) -> None:
        policy = self.policy(topic)
        if policy.compacts and policy.is_stream:
            partition = await self.store.partition(topic, number)
            if isinstance(partition, StreamPartition):
                await compact_if_due(partition, policy.compaction)
