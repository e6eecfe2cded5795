"""Topics that nobody uses cost a broker nothing while it is idle."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headrace.broker.access import Access
from headrace.broker.background import Background
from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.organisations import DEFAULT_ORGANISATION
from headrace.security.caller import system_caller
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.link import parse_info
from headrace.store.store import Store
from headrace.store.topic_configs.policy import TopicPolicy
from tests.conftest import StartRedis
from tests.store.produced import produce

PARTITIONS = 8


@pytest.fixture
async def broker(start_redis: StartRedis) -> AsyncIterator[Broker]:
    store = Store(parse_address(start_redis().url), node_at(0, "127.0.0.1", 9092), StoreOptions())
    await store.start()
    yield Broker(store, BrokerOptions(), GroupSettings())
    await store.close()


async def looks(store: Store) -> int:
    """How often the length of a stream was asked for."""
    facts = parse_info(await store.link.call("INFO", "commandstats"))
    return int(facts.get("cmdstat_xlen", "calls=0,").split(",")[0].removeprefix("calls="))


async def test_retention_opens_no_empty_partition_and_looks_at_each_once(broker: Broker) -> None:
    store, background = broker.store, Background(broker)
    access = Access(broker, system_caller(DEFAULT_ORGANISATION))
    topic = await store.default.catalogue.create("unused", PARTITIONS, {})
    before = await looks(store)
    for _ in range(3):
        await background._apply_retention(access, topic)
        assert await looks(store) == before + PARTITIONS
    assert not list(store.default.partitions)


async def test_retention_finds_what_redis_code_wrote_to_a_topic_that_no_client_used(broker: Broker) -> None:
    store, background = broker.store, Background(broker)
    access = Access(broker, system_caller(DEFAULT_ORGANISATION))
    configs = {"headrace.format": "stream", "retention.ms": "1000"}
    topic = await store.default.catalogue.create("shared", PARTITIONS, configs)
    await background._apply_retention(access, topic)
    assert not list(store.default.partitions)
    key = topic.keys(store.default.keys, 3).log
    await store.link.call("XADD", key, "1700000000000-0", "value", "old")
    await background._apply_retention(access, topic)
    assert [partition.number for partition in store.default.partitions] == [3]
    assert await store.link.call("XLEN", key) == 0


async def test_a_round_of_retention_asks_nothing_about_topics_that_it_found_empty(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, background = broker.store, Background(broker)
    access = Access(broker, system_caller(DEFAULT_ORGANISATION))
    topics = [await store.default.catalogue.create(f"unused-{at}", PARTITIONS, {}) for at in range(3)]
    asked: list[Topic] = []

    def policy(topic: Topic) -> TopicPolicy:
        asked.append(topic)
        return store.policies.of(topic)

    monkeypatch.setattr(broker, "policy", policy)
    await background._retain(access)
    assert asked == topics
    await background._retain(access)
    assert asked == topics
    await store.default.partition(topics[1], 5)
    await store.default.catalogue.add_partitions(topics[2], PARTITIONS + 1)
    await background._retain(access)
    assert [topic.name for topic in asked[3:]] == ["unused-1", "unused-2"]


async def test_retention_finds_what_was_produced_to_a_topic_that_was_empty(broker: Broker) -> None:
    store, background = broker.store, Background(broker)
    access = Access(broker, system_caller(DEFAULT_ORGANISATION))
    topic = await store.default.catalogue.create("orders", PARTITIONS, {"retention.ms": "1000"})
    for _ in range(2):
        await background._retain(access)
    partition = await store.default.partition(topic, 3)
    await produce(partition, b"old", timestamps=[1_700_000_000_000])
    await background._retain(access)
    assert (partition.log_start, partition.end) == (1, 1)
