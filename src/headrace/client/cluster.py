"""A cluster: which broker to ask, and when to retry.

It caches leaders, coordinators and the controller, and a connection to each broker. Stale entries are dropped and
looked up again, within one deadline for the whole call. A request that may have been applied is only resent if the
caller says that this does no harm.
"""

from __future__ import annotations

import contextlib
import math
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

import msgspec

from headrace.client.connection import BrokerConnection, check
from headrace.client.errors import AWAY, BrokerUnreachable, RetriableError, kafka_error
from headrace.client.sasl import Sasl
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.wire.schema import Payload
from headrace.wire.topic_partition import TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound=Payload)

DEFAULT_PORT = 9092
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
AWAY_S = 2.0
"""Enough for another node to take over from one that died."""
PARTITIONS_PER_REQUEST = 4_000
"""Far below what a broker takes in one request (`request_elements_max`), with a topic for each."""
COORDINATOR_OF_GROUP = 0
COORDINATOR_OF_TRANSACTIONS = 1


class BrokerNode(msgspec.Struct, frozen=True):
    """A broker, from the metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Cluster:
    """A cluster, reached through any of its brokers (`host:port,host:port`). `timeout_s` is each call's deadline."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = 30.0,
        client_id: str = "headrace",
        ssl_context: ssl.SSLContext | None = None,
        sasl: Sasl | None = None,
    ) -> None:
        self.bootstrap = [parse_broker_address(text) for text in bootstrap.split(",") if text.strip()]
        if not self.bootstrap:
            raise ValueError("No broker given: use host:port.")
        self.timeout_s = timeout_s
        self.client_id = client_id
        self.nodes: dict[int, BrokerNode] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._fresh: set[str] = set()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._ssl_context = ssl_context
        self._sasl = sasl
        self._away_s: float | None = None
        self._away_until_s: float | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Retrying

    def retrying(self, attempt: Callable[[], T], *, repeatable: bool = True) -> T:
        """The result of `attempt`, retried until it succeeds, fails for good or the deadline has passed.

        `repeatable`: applying it twice does no harm. A cluster that was never reached is not retried.
        """
        deadline = time.monotonic() + self.timeout_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except (BrokerUnreachable, RetriableError) as error:
                maybe_done = isinstance(error, BrokerUnreachable) and error.request_sent
                maybe_done |= isinstance(error, KafkaError) and error.code == ErrorCode.REQUEST_TIMED_OUT
                never_reached = isinstance(error, BrokerUnreachable) and not self.nodes
                until = min(deadline, self._patience_until_s(error))
                if never_reached or (maybe_done and not repeatable) or time.monotonic() + pause_s > until:
                    raise
            self.forget()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    @contextlib.contextmanager
    def impatient(self, away_s: float = AWAY_S) -> Iterator[None]:
        """Inside, all calls together wait `away_s` at most for a part of the store that is away.

        For those who show what is known, and say what is not: a server may stay away for hours.
        """
        before = self._away_s, self._away_until_s
        self._away_s, self._away_until_s = away_s, None
        try:
            yield
        finally:
            self._away_s, self._away_until_s = before

    def _patience_until_s(self, error: Exception) -> float:
        if self._away_s is None or not isinstance(error, KafkaError) or error.code not in AWAY:
            return math.inf
        if self._away_until_s is None:
            self._away_until_s = time.monotonic() + self._away_s
        return self._away_until_s

    def forget(self) -> None:
        """Clears the cache: leaders, coordinators and the controller are looked up again when needed."""
        self._topics.clear()
        self._coordinators.clear()
        self.controller_id = -1

    def expect_topics(self, names: Iterable[str]) -> None:
        """These were just created: 'unknown topic' is retried until a broker knows them."""
        self._fresh.update(names)

    def forget_topics(self, names: Iterable[str]) -> None:
        """These were just deleted."""
        for name in names:
            self._fresh.discard(name)
            self._topics.pop(name, None)

    # Connections

    def any_node(self) -> BrokerConnection:
        """A connection to a broker that answers, preferably an open one."""
        for connection in self._connections.values():
            if connection.is_idle:
                return connection
        unreachable: BrokerUnreachable | None = None
        for host, port in [*((node.host, node.port) for node in self.nodes.values()), *self.bootstrap]:
            try:
                return self._connect(host, port)
            except BrokerUnreachable as error:
                unreachable = error
        assert unreachable is not None
        raise unreachable

    def node(self, node_id: int) -> BrokerConnection:
        """The connection to a broker."""
        node = self.nodes.get(node_id)
        if node is None:
            self.refresh([])
            node = self.nodes.get(node_id)
        if node is None:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"Broker {node_id} is not in the cluster now.")
        return self._connect(node.host, node.port)

    def controller(self) -> BrokerConnection:
        """The connection to the controller, which changes topics; to any broker if there is none."""
        if self.controller_id not in self.nodes:
            self.refresh([])
        return self.node(self.controller_id) if self.controller_id in self.nodes else self.any_node()

    def ask_all(self, ask: Callable[[BrokerConnection], int]) -> dict[int, KafkaError]:
        """Calls `ask` with every broker; it returns the error code of the answer.

        Returns the errors of brokers that cannot know all of theirs now, because a part of the store is away.
        """
        missing: dict[int, KafkaError] = {}

        def attempt() -> None:
            missing.clear()
            self.refresh([])
            for node_id in sorted(self.nodes):
                code = ask(self.node(node_id))
                if code in AWAY:
                    missing[node_id] = kafka_error(code)
                else:
                    check(code)
            for error in missing.values():
                raise error

        try:
            self.retrying(attempt)
        except KafkaError as error:
            if error not in missing.values():
                raise
        return missing

    def coordinator(self, key: str, kind: int = COORDINATOR_OF_GROUP) -> BrokerConnection:
        """The connection to the broker that owns a group, or a transactional id."""
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            node_id = self._coordinators[kind, key] = self._find_coordinator(key, kind)
        return self.node(node_id)

    def _connect(self, host: str, port: int) -> BrokerConnection:
        connection = self._connections.get((host, port))
        if connection is not None and not connection.is_idle:
            # Broken, or left in the middle of an exchange by an error elsewhere: responses would be mixed up.
            connection.close()
            connection = None
        if connection is None:
            connection = BrokerConnection(host, port, self.timeout_s, self.client_id, self._ssl_context, self._sasl)
            self._connections[host, port] = connection
        return connection

    def _find_coordinator(self, key: str, kind: int) -> int:
        request = FindCoordinatorRequest(key, kind, [key])
        answer = self.any_node().send_for(request, FindCoordinatorResponse)
        for found in answer.coordinators:
            check(found.error_code, found.error_message)
            self.nodes.setdefault(found.node_id, BrokerNode(found.node_id, found.host, found.port))
            return found.node_id
        check(answer.error_code, answer.error_message)
        self.nodes.setdefault(answer.node_id, BrokerNode(answer.node_id, answer.host, answer.port))
        return answer.node_id

    # Metadata

    def refresh(self, topics: list[str] | None = None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Requests metadata of the brokers and these topics (None: all), and caches it."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(wanted, allow_auto_topic_creation=create)
        answer = self.any_node().send_for(request, MetadataResponse)
        check(answer.error_code)
        self.nodes = {b.node_id: BrokerNode(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        for topic in answer.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self._topics[topic.name] = topic
        return answer.topics

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """A topic's metadata; with `create`, brokers that auto-create topics create it."""
        found = self._topics.get(name)
        if found is None:
            (found,) = self.refresh([name], create=create)
            if found.error_code != ErrorCode.NONE:
                raise self.topic_error(name, found.error_code)
            self._fresh.discard(name)
        return found

    def topic_error(self, name: str, code: int, message: str | None = None) -> KafkaError:
        """The error for a topic: an unknown topic is retriable only if it was just created."""
        unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if unknown and message is None:
            message = f"There is no topic '{name}'."
        return kafka_error(code, message, retriable=unknown and name in self._fresh)

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition."""
        for found in self.topic(topic).partitions:
            if found.partition_index == partition:
                if found.leader_id < 0:
                    raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now.")
                return found.leader_id
        message = f"Topic '{topic}' has no partition {partition}."
        raise self.topic_error(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by the node that leads them."""
        found: dict[int, list[TopicPartition]] = {}
        for topic, partition in partitions:
            found.setdefault(self.leader(topic, partition), []).append((topic, partition))
        return found

    def requests(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[int, list[TopicPartition]]]:
        """The same in parts for one request each: there may be more than a broker takes at once."""
        for node_id, led in self.by_leader(partitions).items():
            for some in in_parts(led):
                yield node_id, some


def in_parts(partitions: Sequence[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """The partitions in parts for one request each."""
    for at in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        yield list(partitions[at : at + PARTITIONS_PER_REQUEST])


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions by topic, as in requests."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def parse_broker_address(text: str) -> tuple[str, int]:
    """`host:port`, `host` or `[::1]:port` as host and port."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.strip().endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise ValueError(f"'{text.strip()}' is not a broker address: use host:port.")
    return host.removeprefix("[").removesuffix("]"), int(port)
