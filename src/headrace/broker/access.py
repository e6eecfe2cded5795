"""A caller's access to the topics, partitions, groups and configs of its organisation.

This is the only way to them. Handlers have it as their `Call`, background work opens one for the broker itself, and
nothing else in the broker touches a catalogue or the coordinator (a test checks this). So rights and organisations are
checked here and no handler can forget to: every access names its operation, and changes to a topic check their own
right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.broker.owned.contract import Name
from headrace.broker.rights.asking import Ask, OnCluster
from headrace.broker.rights.checks import Checks
from headrace.broker.transactions.joining import Producing
from headrace.security.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.security.quotas import IP
from headrace.store.cluster.catalogue import ANYWHERE, Placing, Topic
from headrace.store.cluster.configs import Configs
from headrace.store.cluster.identity import from_kafka_uuid
from headrace.store.cluster.nodes.endpoints import Endpoint, Node
from headrace.store.cluster.owned.transactions import Parts
from headrace.store.redis.errors import StoreError
from headrace.store.topic_configs.table import CLEANUP_POLICY
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.offsets_topic import OFFSETS_TOPIC
from headrace.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.owned.thing import Thing
    from headrace.broker.transactions.coordinator import Shown
    from headrace.groups.classic import Group
    from headrace.groups.classic.events import Request
    from headrace.security.acls import Acl
    from headrace.security.caller import Caller
    from headrace.security.quotas import Entity, QuotaTable
    from headrace.security.rules import AccessDecision, AccessQuestion
    from headrace.store.cluster.owned.groups import Committed
    from headrace.store.cold.standing import Standing
    from headrace.store.partition.base import Partition
    from headrace.store.security.tenants import TenantLimits
    from headrace.transactions.events import Answered
    from headrace.wire.topic_partition import TopicPartition

Answer = TypeVar("Answer")


class Access(Checks):
    """One caller's way in."""

    __slots__ = ("_organisation", "broker")

    def __init__(self, broker: Broker, caller: Caller) -> None:
        self.broker = broker
        self.caller = caller
        self._organisation = broker.store.organisations[caller.organisation]
        self._rights = broker.authorizer.rights_of(caller)

    @property
    def is_served(self) -> bool:
        """Whether the caller's organisation is still there."""
        return self.broker.store.organisations.get(self.caller.organisation) is self._organisation

    @property
    def limits(self) -> TenantLimits:
        """The organisation's limits."""
        return self.broker.store.tenants.limits(self.caller.organisation)

    def from_host(self, host: str) -> Access:
        """The same for a client at this address."""
        return Access(self.broker, self.caller._replace(host=host))

    # -- topics -------------------------------------------------------------------------------------------------

    async def topic(self, ask: Ask, name: str, uuid: bytes = ZERO_UUID, *, by_id: bool = False) -> Topic:
        """The topic that a request names, by id or by name; the error that Kafka gives if there is none."""
        topic = await self.find_topic(ask, name, uuid, by_id=by_id)
        if topic is None and by_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic

    async def find_topic(self, ask: Ask, name: str, uuid: bytes = ZERO_UUID, *, by_id: bool = False) -> Topic | None:
        """The same, or None. By name the right is checked first, so that existence is not revealed."""
        if not by_id:
            self.check(ask, ResourceType.TOPIC, name)
            return await self._organisation.catalogue.find(name)
        topic = await self._organisation.catalogue.find_uuid(uuid)
        if topic is not None:
            self.check(ask, ResourceType.TOPIC, topic.name)
        return topic

    async def offsets_topic(self) -> Topic:
        """`__consumer_offsets`, which the broker makes when somebody first asks for it by name."""
        self.check(Operation.DESCRIBE, ResourceType.TOPIC, OFFSETS_TOPIC)
        try:
            return await self._organisation.catalogue.create(OFFSETS_TOPIC, 1, {CLEANUP_POLICY: "compact"})
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return await self.topic(Operation.DESCRIBE, OFFSETS_TOPIC)

    def known_topic(self, ask: Ask, name: str) -> Topic | None:
        """A topic as this node last saw it."""
        self.check(ask, ResourceType.TOPIC, name)
        return self._organisation.catalogue.by_name.get(name)

    def topic_in_memory(self, operation: Operation, name: str, uuid: bytes, *, by_id: bool) -> Topic | None:
        """A topic that this node knows and that the caller has this right to; None: ask with `topic`."""
        catalogue = self._organisation.catalogue
        topic = catalogue.by_uuid.get(uuid) if by_id else catalogue.by_name.get(name)
        if topic is None or (
            self._rights is not None and not self._rights.allows(operation, ResourceType.TOPIC, topic.name)
        ):
            return None
        return topic

    def topics(self, ask: Ask) -> list[Topic]:
        """All topics that the caller has this right to, as this node last saw them."""
        found = list(self._organisation.catalogue.by_name.values())
        if isinstance(ask, OnCluster):
            self.check_cluster(ask.operation)
            return found
        if self._rights is None:
            return found
        return [topic for topic in found if self._rights.allows(ask, ResourceType.TOPIC, topic.name)]

    @property
    def topics_version(self) -> int:
        """Rises with every change of a topic that this node has seen."""
        return self._organisation.catalogue.version

    def partition_count(self) -> int:
        """Partitions of all topics together, for limits."""
        return sum(topic.partitions for topic in self._organisation.catalogue.by_name.values())

    def taken_names(self) -> Collection[str]:
        """The names of all topics, to hold a new one against: not to be shown."""
        return self._organisation.catalogue.by_name.keys()

    async def look_again(self) -> None:
        """Applies other nodes' latest changes; if the store is away, the cached catalogue answers."""
        with contextlib.suppress(StoreError):
            await self._organisation.catalogue.refresh()

    async def create_topic(
        self, name: str, partitions: int, configs: dict[str, str], placing: Placing = ANYWHERE
    ) -> Topic:
        self.check_create_topic(name)
        self.charge_mutations(partitions)
        topic = await self._organisation.catalogue.create(name, partitions, configs, placing)
        self.note("created a topic", topic=name, partitions=partitions, configs=configs)
        return topic

    async def add_partitions(self, topic: Topic, total: int, assignments: dict[int, list[int]]) -> None:
        self.check(Operation.ALTER, ResourceType.TOPIC, topic.name)
        self.charge_mutations(total - topic.partitions)
        await self._organisation.catalogue.add_partitions(topic, total, assignments)
        self.note("added partitions", topic=topic.name, partitions=total)

    async def set_topic_configs(self, topic: Topic, configs: dict[str, str]) -> None:
        self.check(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic.name)
        await self._organisation.catalogue.set_configs(topic, configs)
        self.note("changed configs", topic=topic.name, configs=configs)

    async def delete_topic(self, topic: Topic) -> None:
        """A deleted topic is forgotten at once, so that its long polls end."""
        self.check_delete_topic(topic.name)
        self.charge_mutations(topic.partitions)
        try:
            await self._organisation.catalogue.delete(topic)
        finally:
            if topic.uuid not in self._organisation.catalogue.by_uuid:
                self._organisation.forget(topic)
                self.note("deleted a topic", topic=topic.name)

    async def standing(self, topic: Topic) -> dict[int, Standing]:
        """The tiering state of a topic, by partition."""
        return await self._organisation.standing(topic)

    def charge_mutations(self, partitions: int) -> None:
        """Counts partitions that are made or deleted; the broker's own work is free."""

    def note(self, what: str, **details: object) -> None:
        """A line in the audit log about something that the caller changed."""
        self.broker.authorizer.note(self.caller, what, **details)

    # -- partitions ---------------------------------------------------------------------------------------------

    async def led_partition(self, topic: Topic, number: int) -> Partition:
        """A partition that exists and that this node leads; the error that Kafka gives otherwise."""
        if not 0 <= number < topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {number}.")
        if not self.broker.store.nodes.leads(topic, number):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Another node leads {topic.name}-{number}.")
        if self.broker.store.nodes.has_overslept:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node was stopped for longer than its lease.")
        return self._organisation.opened.get((topic.uuid, number)) or await self.partition(topic, number)

    def led_in_memory(self, topic: Topic, number: int) -> Partition | None:
        """A partition that this node leads and has read; None: ask with `led_partition`."""
        if not 0 <= number < topic.partitions or not self.broker.store.nodes.leads_now(topic, number):
            return None
        return self._organisation.opened.get((topic.uuid, number))

    async def partition(self, topic: Topic, number: int) -> Partition:
        """A partition, whoever leads it."""
        return await self._organisation.partition(topic, number)

    async def untouched(self, topic: Topic, numbers: Sequence[int]) -> set[int]:
        """The empty partitions that this node has not loaded."""
        unread = [number for number in numbers if self.known_partition(topic, number) is None]
        return await self._organisation.without_entries(topic, unread)

    def known_partition(self, topic: Topic, number: int) -> Partition | None:
        """The same, if this node has read it before."""
        return self._organisation.opened.get((topic.uuid, number))

    def open_partitions(self) -> list[Partition]:
        """The partitions that this node has loaded."""
        return list(self._organisation.partitions)

    def check_room(self) -> None:
        """Raises POLICY_VIOLATION if the organisation has stored all that it may."""
        full = self.broker.store.usage.full
        if full and self.caller.organisation in full:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "The organisation has reached its limit of stored bytes.")

    # -- groups -------------------------------------------------------------------------------------------------

    def ask_group(self, operation: Operation, request: Request, kind: type[Answer]) -> Awaitable[Answer]:
        """A group's answer to a request, which may be held back until others have come."""
        self.check(operation, ResourceType.GROUP, request.group_id)
        return self.broker.coordinator.ask(self.caller.organisation, request, kind)

    def submit_to_group(self, operation: Operation, request: Request, answer: Any) -> bool:
        """The same with a token that sends the answer itself; False if the right is missing: ask with `ask_group`.

        Not for commits: those may have to wait for pending ones.
        """
        rights = self._rights
        if rights is not None and not rights.allows(operation, ResourceType.GROUP, request.group_id):
            return False
        self.broker.coordinator.submit(Name(self.caller.organisation, request.group_id), request, answer)
        return True

    async def group(self, operation: Operation, group_id: str) -> Thing[Group]:
        """A group for looking at; the caller checks whether it exists."""
        self.check(operation, ResourceType.GROUP, group_id)
        return await self.broker.coordinator.find(self.caller.organisation, group_id)

    async def awaited_group(self, operation: Operation, group_id: str) -> Thing[Group]:
        """The same, though the store is away for a moment."""
        self.check(operation, ResourceType.GROUP, group_id)
        return await self.broker.coordinator.wait_for(self.caller.organisation, group_id)

    async def groups(self, operation: Operation) -> tuple[list[Group], ErrorCode]:
        """This node's groups that the caller has this right to, and an error if some cannot be known now.

        A right to the cluster counts for all of them.
        """
        found, error = await self.broker.coordinator.all(self.caller.organisation)
        if not self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            found = [group for group in found if self.may(operation, ResourceType.GROUP, group.group_id)]
        return found, error

    def committed(self, operation: Operation, group: Thing[Group], place: TopicPartition) -> Committed | None:
        """A committed offset of the current topic, not of a deleted one or one hidden from the caller."""
        if not self.may(operation, ResourceType.TOPIC, place[0]):
            return None
        return self.broker.coordinator.valid_offset(group, place)

    def commit_time_ms(self) -> int:
        """The groups' clock."""
        return self.broker.coordinator.now_ms()

    # -- transactions -------------------------------------------------------------------------------------------

    async def init_transactions(self, name: str, timeout_ms: int, producer: tuple[int, int]) -> Answered:
        """A producer takes a transactional id."""
        self.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        return await self.broker.transactions.init_producer(self.caller.organisation, name, timeout_ms, producer)

    async def end_transaction(self, name: str, producer: tuple[int, int], *, commit: bool, version: int) -> Answered:
        """Commits or aborts the open transaction."""
        self.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        org = self.caller.organisation
        return await self.broker.transactions.end(org, name, producer, commit=commit, version=version)

    async def add_to_transaction(
        self, name: str, producer: tuple[int, int], parts: Parts, *, only_check: bool = False
    ) -> ErrorCode:
        """Adds partitions and groups, as the coordinator of the id is asked to."""
        org = self.caller.organisation
        return await self.broker.transactions.add(org, name, producer, parts, only_check=only_check)

    async def join_transaction(
        self, name: str, producer: tuple[int, int], group_id: str, *, adds: bool
    ) -> tuple[ErrorCode, int]:
        """Adds a group, or asks whether it is in, at whichever node; the number of the transaction."""
        who = Producing(self.caller.organisation, name, *producer)
        try:
            return await self.broker.joining.add(who, Parts(groups=[group_id]), only_check=not adds)
        except StoreError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, 0

    async def transaction(self, name: str) -> Shown | None:
        """A transactional id for looking at."""
        self.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        return await self.broker.transactions.find(self.caller.organisation, name)

    async def transactions(self) -> tuple[list[Shown], ErrorCode]:
        """The transactional ids of this node that the caller may see, and an error if some cannot be known now."""
        found, error = await self.broker.transactions.all(self.caller.organisation)
        return [o for o in found if self.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, o.known.id)], error

    def topics_of(self, parts: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
        """Names and partitions of the existing topics that the caller may see."""
        found: dict[str, list[int]] = {}
        for topic_id, number in parts:
            topic = self._organisation.catalogue.by_uuid.get(from_kafka_uuid(topic_id))
            if topic is not None and self.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                found.setdefault(topic.name, []).append(number)
        return found

    # -- configs ------------------------------------------------------------------------------------------------

    async def look_at_configs(self) -> None:
        """Applies other nodes' latest changes to topics and configs."""
        await self.look_again()
        with contextlib.suppress(StoreError):
            for configs in {self._organisation.configs, self.broker.store.default.configs}:
                await configs.refresh()

    def group_configs(self, ask: Ask, group_id: str) -> Configs:
        """The configs of the organisation's groups, for this one."""
        self.check(ask, ResourceType.GROUP, group_id)
        return self._organisation.configs

    def broker_configs(self, operation: Operation) -> Configs:
        """The configs of brokers, which all organisations share."""
        self.check_all_tenants(operation)
        return self.broker.store.default.configs

    # -- rules --------------------------------------------------------------------------------------------------

    async def rules(self, operation: Operation) -> list[Acl]:
        """The organisation's ACLs, with other nodes' latest changes."""
        self.check_cluster(operation)
        with contextlib.suppress(StoreError):
            await self.broker.store.acls.refresh()
        return list(self.broker.authorizer.rules(self.caller.organisation))

    async def add_rule(self, rule: Acl) -> None:
        self.check_cluster(Operation.ALTER)
        await self.broker.authorizer.add(self.caller, rule)

    async def remove_rule(self, rule: Acl) -> None:
        self.check_cluster(Operation.ALTER)
        await self.broker.authorizer.remove(self.caller, rule)

    def explain(self, question: AccessQuestion) -> AccessDecision:
        """The decision for a principal by the rules of the caller's organisation."""
        self.check_cluster(Operation.DESCRIBE)
        return self.broker.authorizer.rules(self.caller.organisation).decide(question)

    # -- quotas -------------------------------------------------------------------------------------------------

    async def quotas(self, operation: Operation) -> QuotaTable:
        """The organisation's quotas, with other nodes' latest changes."""
        self.check_cluster(operation)
        with contextlib.suppress(StoreError):
            await self.broker.quotas.refresh()
        return self.broker.quotas.table(self.caller.organisation)

    async def change_quotas(
        self, entity: Entity, change: Callable[[Mapping[str, float]], dict[str, float]], *, validate_only: bool
    ) -> None:
        """Replaces an entity's quotas by the result of `change`; quotas of addresses belong to all organisations."""
        if entity[0][0] == IP:
            self.check_all_tenants(Operation.ALTER_CONFIGS)
        await self.quotas(Operation.ALTER_CONFIGS)
        values = await self.broker.quotas.change(self.caller.organisation, entity, change, validate_only=validate_only)
        if values is not None:
            self.broker.authorizer.audit.changed(self.caller, "changed quotas", entity=str(entity), quotas=values)

    # -- nodes --------------------------------------------------------------------------------------------------

    def endpoint(self, node: Node) -> Endpoint | None:
        """Where the caller reaches a node: by the listener that it came in by; None if the node does not have it."""
        return node.at(self.caller.listener)

    def owner_of(self, key: str) -> Node:
        """The node that looks after a group, or a transactional id."""
        return self.broker.store.nodes.owner(key.encode())
