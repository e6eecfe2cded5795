"""`__consumer_offsets` as tools read it: Kafka's own format, written while somebody reads, and only then."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.special_times import EARLIEST, LATEST
from tests.broker import members
from tests.broker.members import NONE, Member, commit, committed_offset
from tests.broker.peers import batch_of, connect, create_topic, metadata, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.nodes_process import kill_node, ports_in_a_row
from tests.redis_view import RedisView

OFFSETS = "__consumer_offsets"
WATCH = "headrace:default:offsets-watch"
PATIENCE_S = 60


class Commit(NamedTuple):
    """What a record says, read by the schema and not by the code that writes it."""

    group: str
    topic: str
    partition: int
    offset: int | None
    metadata: str = ""


class Members(NamedTuple):
    """The same for a group's members."""

    group: str
    generation: int | None
    clients: tuple[str, ...] = ()


class Bytes:
    """Reads Kafka's types one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def bytes(self, form: str = "i") -> bytes:
        length = self.number(form)
        self._at += max(length, 0)
        return self._data[self._at - max(length, 0) : self._at]

    def string(self) -> str:
        return self.bytes("h").decode()

    @property
    def is_over(self) -> bool:
        return self._at == len(self._data)


def decode(key: bytes, value: bytes | None) -> Commit | Members:
    name = Bytes(key)
    if name.number("h") == 2:
        group = name.string()
        return Members(group, None) if value is None else _members(group, Bytes(value))
    group, topic, partition = name.string(), name.string(), name.number("i")
    assert name.is_over
    if value is None:
        return Commit(group, topic, partition, None)
    said = Bytes(value)
    assert said.number("h") == 3
    offset, _, note, committed_ms = said.number("q"), said.number("i"), said.string(), said.number("q")
    assert said.is_over
    assert committed_ms > 1_700_000_000_000
    return Commit(group, topic, partition, offset, note)


def _members(group: str, said: Bytes) -> Members:
    assert said.number("h") == 3
    said.string()
    generation = said.number("i")
    said.string()
    said.string()
    said.number("q")
    clients = []
    for _ in range(said.number("i")):
        said.string()
        said.string()
        clients.append(said.string())
        said.string()
        assert said.number("i") > 0
        assert said.number("i") > 0
        said.bytes()
        said.bytes()
    assert said.is_over
    return Members(group, generation, tuple(clients))


class Reader:
    """A consumer of the topic, without a group."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.seen: list[Commit | Members] = []

    def poll(self) -> None:
        message = self._consumer.poll(0.2)
        if message is None:
            return
        assert message.error() is None, message.error()
        self.seen.append(decode(message.key() or b"", message.value()))

    def wait_for(self, wanted: Commit | Members) -> None:
        def is_there() -> bool:
            self.poll()
            return wanted in self.seen

        wait_until(is_there, f"{wanted} is not among {self.seen}", timeout_s=PATIENCE_S)

    @property
    def commits(self) -> dict[tuple[str, str, int], int | None]:
        """The last one of each key, as a compacted topic has it."""
        return {one[:3]: one.offset for one in self.seen if isinstance(one, Commit)}


@contextmanager
def reading(*brokers: BrokerProcess, since: int = OFFSET_BEGINNING) -> Iterator[Reader]:
    addresses = ",".join(broker.address for broker in brokers)
    consumer = Consumer({"bootstrap.servers": addresses, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(OFFSETS, 0, since)])
    try:
        yield Reader(consumer)
    finally:
        consumer.close()


def ends(connection: BrokerConnection) -> tuple[int, int]:
    """Start and end of the topic."""
    found = []
    for time in (EARLIEST, LATEST):
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(OFFSETS, [ListOffsetsPartition(0, -1, time)])]
        )
        (topic,) = connection.send_for(request, ListOffsetsResponse, 7).topics
        assert topic.partitions[0].error_code == 0
        found.append(topic.partitions[0].offset)
    return found[0], found[1]


@pytest.fixture
def connection(groups_broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(groups_broker) as found:
        yield found


def test_asking_for_it_makes_it_internal_and_nobody_can_write_it(connection: BrokerConnection) -> None:
    (found,) = metadata(connection, OFFSETS).topics
    assert (found.error_code, found.is_internal, len(found.partitions)) == (0, True, 1)
    answer = produce(connection, OFFSETS, {0: batch_of(b"x")})[0]
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_reader_sees_what_is_committed_already_and_each_commit_that_follows(
    groups_broker: BrokerProcess, connection: BrokerConnection, topic: str, group: str
) -> None:
    create_topic(connection, topic, partitions=2)
    commit(connection, group, topic, {0: 3, 1: 4})
    with reading(groups_broker) as reader:
        reader.wait_for(Commit(group, topic, 0, 3))
        reader.wait_for(Commit(group, topic, 1, 4))
        commit(connection, group, topic, {1: 5})
        reader.wait_for(Commit(group, topic, 1, 5))
        with reading(groups_broker) as other:
            other.wait_for(Commit(group, topic, 1, 5))
            assert other.commits[group, topic, 0] == 3


def test_a_deleted_offset_and_a_deleted_group_are_tombstones(
    groups_broker: BrokerProcess, connection: BrokerConnection, topic: str, group: str
) -> None:
    create_topic(connection, topic, partitions=2)
    commit(connection, group, topic, {0: 3, 1: 4})
    with reading(groups_broker) as reader:
        reader.wait_for(Commit(group, topic, 0, 3))
        members.delete_offsets(connection, group, topic, 0)
        reader.wait_for(Commit(group, topic, 0, None))
        assert members.delete_groups(connection, group) == [NONE]
        reader.wait_for(Commit(group, topic, 1, None))
        reader.wait_for(Members(group, None))


def test_members_are_shown_once_they_have_their_assignments(
    groups_broker: BrokerProcess, connection: BrokerConnection, topic: str, group: str
) -> None:
    create_topic(connection, topic)
    with reading(groups_broker) as reader, Member(groups_broker, group) as member:
        member.form()

        def is_shown() -> bool:
            reader.poll()
            return any(one.group == group and one.clients for one in reader.seen if isinstance(one, Members))

        wait_until(is_shown, "no members are shown", timeout_s=PATIENCE_S)


def test_members_too_large_for_a_record_are_a_tombstone_and_not_what_they_were_before(
    groups_broker: BrokerProcess, connection: BrokerConnection, topic: str, group: str
) -> None:
    create_topic(connection, topic)
    with reading(groups_broker) as reader, Member(groups_broker, group, client_id="a") as member:
        member.form()
        reader.wait_for(Members(group, member.generation, ("a",)))
        member.protocols = {"range": bytes(2 << 20)}
        member.form()
        reader.wait_for(Members(group, None))


def test_while_nobody_reads_commits_write_nothing_and_the_topic_is_emptied(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, group: str
) -> None:
    redis = start_redis()
    broker = start_broker(redis=redis.url)
    with connect(broker) as connection, RedisView(redis.url) as store:
        create_topic(connection, topic)
        metadata(connection, OFFSETS)
        commit(connection, group, topic, {0: 1})
        assert ends(connection) == (0, 0)
        with reading(broker, since=OFFSET_END) as reader:
            reader.wait_for(Commit(group, topic, 0, 1))
        store.call("DEL", WATCH)  # what the time without a reader does
        wait_until(lambda: len(set(ends(connection))) == 1, "records are left", timeout_s=PATIENCE_S)
        _, end = ends(connection)
        commit(connection, group, topic, {0: 2})
        assert ends(connection) == (end, end)
        with reading(broker) as reader:
            reader.wait_for(Commit(group, topic, 0, 2))
            assert Commit(group, topic, 0, 1) not in reader.seen


def test_a_reader_of_what_is_new_misses_nothing_when_the_topic_is_deleted(
    start_broker: StartBroker, topic: str, group: str
) -> None:
    broker = start_broker()
    with connect(broker) as connection, reading(broker) as reader:
        create_topic(connection, topic)
        for offset in range(5):  # it has read further than the new topic is long
            commit(connection, group, topic, {0: offset})
            reader.wait_for(Commit(group, topic, 0, offset))
        request = DeleteTopicsRequest([DeleteTopicState(OFFSETS)], timeout_ms=10_000)
        (deleted,) = connection.send_for(request, DeleteTopicsResponse).responses
        assert deleted.error_code == NONE
        commit(connection, group, topic, {0: 5})
        reader.wait_for(Commit(group, topic, 0, 5))


def test_readers_go_on_after_the_store_and_the_broker_were_restarted(
    start_broker: StartBroker, start_redis: StartRedis, topic: str, group: str
) -> None:
    redis = start_redis()
    broker = start_broker(redis=redis.url)
    with connect(broker) as connection:
        create_topic(connection, topic)
        commit(connection, group, topic, {0: 1})
    with reading(broker) as reader:
        reader.wait_for(Commit(group, topic, 0, 1))
        redis.stop(Signals.SIGKILL)
        redis.start()
        with connect(broker) as connection:
            wait_until(lambda: commit(connection, group, topic, {0: 2}) == {0: NONE}, "the store does not come back")
        reader.wait_for(Commit(group, topic, 0, 2))
        broker.kill()
        broker.start()
        with connect(broker) as connection:
            assert committed_offset(connection, group, topic) == 2
            commit(connection, group, topic, {0: 3})
        reader.wait_for(Commit(group, topic, 0, 3))


def test_groups_of_every_node_are_in_it_also_after_a_node_died(
    start_broker: StartBroker, topic: str, group: str
) -> None:
    broker = start_broker(nodes=3, port=ports_in_a_row(3), node_lease_ms=3_000)
    groups = [f"{group}-{number}" for number in range(8)]
    with connect(broker) as connection:
        create_topic(connection, topic)
    with reading(broker) as reader:
        _commit_each(broker, groups, topic, 1)
        for one in groups:
            reader.wait_for(Commit(one, topic, 0, 1))
        kill_node(broker)
        _commit_each(broker, groups, topic, 2)
        for one in groups:
            reader.wait_for(Commit(one, topic, 0, 2))


def _commit_each(broker: BrokerProcess, groups: list[str], topic: str, offset: int) -> None:
    """Each group by a client that finds the group's node."""
    for group in groups:
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "enable.auto.commit": False})
        try:
            _commit_until_taken(consumer, topic, offset)
        finally:
            consumer.close()


def _commit_until_taken(consumer: Consumer, topic: str, offset: int) -> None:
    def is_taken() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return True

    wait_until(is_taken, "no coordinator takes it", timeout_s=PATIENCE_S)
