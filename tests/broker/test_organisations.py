"""Two organisations at one broker, each at a listener of its own, seen by a real client: all names are twice there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, ParamSpec, TypeVar

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from headrace.broker.access import Access
from headrace.broker.broker import Broker
from headrace.broker.network.server import Server
from headrace.broker.options import BrokerOptions
from headrace.cli.serve.listening import listen
from headrace.groups.settings import GroupSettings
from headrace.security.acls import Operation
from headrace.security.caller import ANONYMOUS, Caller
from headrace.store.cluster.nodes.endpoints import Endpoint, Node
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.broker.test_offsets_topic import Commit, decode
from tests.conftest import StartRedis

T = TypeVar("T")
P = ParamSpec("P")
TOPIC, GROUP = "orders", "readers"
PATIENCE_S = 30
ORGANISATIONS = ("default", "acme")


class Both(NamedTuple):
    """One broker, and where the clients of each organisation connect."""

    broker: Broker
    ports: dict[str, int]

    def access(self, organisation: str) -> Access:
        return Access(self.broker, Caller(ANONYMOUS, organisation, organisation))

    def client(self, organisation: str, **configs: str | bool) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": f"127.0.0.1:{self.ports[organisation]}", **configs}


@pytest.fixture
async def both(start_redis: StartRedis) -> AsyncIterator[Both]:
    sockets = {name: listen("127.0.0.1", 0) for name in ORGANISATIONS}
    ports = {name: socket.getsockname()[1] for name, socket in sockets.items()}
    node = Node(0, tuple(Endpoint(name, "127.0.0.1", port) for name, port in ports.items()))
    store = Store(parse_address(start_redis().url), node, StoreOptions())
    await store.start()
    await store.add_organisation("acme")
    broker = Broker(store, BrokerOptions(), GroupSettings(initial_rebalance_delay_ms=0))
    both = Both(broker, ports)
    broker.start()
    servers = []
    for name, socket in sockets.items():
        server = Server(broker)
        server.anonymous = both.access(name)
        await server.start(socket)
        servers.append(server)
    yield both
    for server in servers:
        await server.stop()
    broker.stop()
    await store.close()


async def apart(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """A client's blocking calls, beside the broker that answers them."""
    return await asyncio.wait_for(asyncio.to_thread(work, *args, **kwargs), 3 * PATIENCE_S)


def produce(configs: dict[str, str | int | float | bool], partitions: int, values: list[bytes]) -> None:
    admin = AdminClient(configs)
    admin.create_topics([NewTopic(TOPIC, partitions)])[TOPIC].result(PATIENCE_S)
    producer = Producer(configs)
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def consume(configs: dict[str, str | int | float | bool], count: int) -> list[bytes | None]:
    consumer = Consumer({**configs, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    found: list[bytes | None] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, found
        assert message.error() is None
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def locator(admin: AdminClient) -> str:
    resource = ConfigResource(ConfigResource.Type.GROUP, GROUP)
    return str(admin.describe_configs([resource])[resource].result(PATIENCE_S)["headrace.group.locator"].value)


def committed(admin: AdminClient) -> int:
    asked = [ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0)])]
    [place] = admin.list_consumer_group_offsets(asked)[GROUP].result(PATIENCE_S).topic_partitions
    return int(place.offset)


def topics_of(admin: AdminClient) -> dict[str, int]:
    """Names and numbers of partitions."""
    found = admin.list_topics(timeout=PATIENCE_S).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def groups_of(admin: AdminClient) -> list[str]:
    return [group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid]


def delete(admin: AdminClient) -> None:
    admin.delete_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)


async def until_mirrored(both: Both, organisation: str) -> None:
    """Redis shows the group on the organisation's own stream."""
    access = both.access(organisation)
    stream = (await access.partition(await access.topic(Operation.DESCRIBE, TOPIC), 0)).keys.log
    async with asyncio.timeout(PATIENCE_S):
        while True:
            groups = await both.broker.store.link.call("XINFO", "GROUPS", stream)
            if [dict(zip(group[::2], group[1::2], strict=True))[b"name"] for group in groups] == [b"kafka:readers"]:
                return
            await asyncio.sleep(0.02)


async def test_topics_groups_and_commits_of_one_name_are_two(both: Both) -> None:
    records = {"default": [b"a", b"b"], "acme": [b"c"]}
    for name, values in records.items():
        await apart(produce, both.client(name), len(values), values)
    for name, values in records.items():
        assert await apart(consume, both.client(name), len(values)) == values
    for name, values in records.items():
        admin = AdminClient(both.client(name))
        assert await apart(topics_of, admin) == {TOPIC: len(values)}
        assert await apart(groups_of, admin) == [GROUP]
        assert await apart(committed, admin) == len(values)
        assert await apart(locator, admin) == f"{name}/consumer-groups/{GROUP}"
        await until_mirrored(both, name)


async def test_what_one_deletes_stays_with_the_other(both: Both) -> None:
    for name in ORGANISATIONS:
        await apart(produce, both.client(name), 1, [b"a"])
        await apart(consume, both.client(name), 1)
    ours, theirs = (AdminClient(both.client(name)) for name in ORGANISATIONS)
    await apart(delete, theirs)
    assert (await apart(topics_of, theirs), await apart(groups_of, theirs)) == ({}, [])
    assert (await apart(topics_of, ours), await apart(groups_of, ours)) == ({TOPIC: 1}, [GROUP])
    assert await apart(committed, ours) == 1


async def test_an_id_of_another_organisation_is_not_known(both: Both) -> None:
    ours, theirs = both.access("default"), both.access("acme")
    topic = await theirs.create_topic(TOPIC, 1, {})
    assert await theirs.topic(Operation.DESCRIBE, "", topic.uuid, by_id=True) == topic
    with pytest.raises(KafkaError) as refused:
        await ours.topic(Operation.DESCRIBE, "", topic.uuid, by_id=True)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (ours.known_partition(topic, 0), ours.topics(Operation.DESCRIBE)) == (None, [])


async def test_a_client_is_told_the_endpoints_of_its_listener(both: Both) -> None:
    for name in ORGANISATIONS:
        admin = AdminClient(both.client(name))
        metadata = await apart(admin.list_topics, timeout=PATIENCE_S)
        assert [broker.port for broker in metadata.brokers.values()] == [both.ports[name]]
        cluster = await apart(lambda admin: admin.describe_cluster().result(PATIENCE_S), admin)
        assert [node.port for node in cluster.nodes] == [both.ports[name]]


def read_commits(configs: dict[str, str | int | float | bool]) -> set[Commit]:
    """The first records of the topic of offsets, up to a commit."""
    consumer = Consumer({**configs, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("__consumer_offsets", 0, OFFSET_BEGINNING)])
    found: set[Commit] = set()
    while not found:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        said = decode(message.key() or b"", message.value())
        if isinstance(said, Commit):
            found.add(said)
    consumer.close()
    return found


async def test_the_topic_of_offsets_has_the_commits_of_its_own_organisation(both: Both) -> None:
    for count, name in enumerate(ORGANISATIONS, 1):
        await apart(produce, both.client(name), 1, [b"x"] * count)
        await apart(consume, both.client(name), count)
    for count, name in enumerate(ORGANISATIONS, 1):
        assert await apart(read_commits, both.client(name)) == {Commit(GROUP, TOPIC, 0, count)}
