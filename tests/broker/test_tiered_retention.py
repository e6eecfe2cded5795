"""What stands in the way of a tiered topic's retention is said once, and again when it is over."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from headrace.broker.access import Access
from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.broker.tiering.retention import TieredRetention
from headrace.groups.settings import GroupSettings
from headrace.security.caller import system_caller
from headrace.store.cluster.catalogue import Placing, Topic
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.store.cold_copy import ColdCopy
from tests.store.produced import log_partition, until
from tests.store.servers import Valkey
from tests.store.tiered import OPTIONS, fill

CONFIGS = {"remote.storage.enable": "true", "local.retention.bytes": "0", "retention.ms": "-1"}
MEMORY_BYTES = 64 << 20


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    valkey = Valkey(appendonly=False, maxmemory=MEMORY_BYTES).start()
    store = Store(parse_address(valkey.url), node_at(0, "127.0.0.1", 9092), OPTIONS)
    await store.start()
    yield store
    await store.close()
    valkey.end()


@pytest.fixture
def cold(store: Store) -> ColdCopy:
    made = ColdCopy()
    store.plug_in(made)
    return made


async def made(store: Store, cold: ColdCopy, name: str = "orders") -> Topic:
    """Two partitions, of which the lake has all. If there are two nodes, each leads one."""
    topic = await store.default.catalogue.create(name, 2, CONFIGS, Placing(1, {0: [0], 1: [1]}))
    for number in (0, 1):
        partition = await log_partition(store, topic, number)
        await fill(partition, 5)
        rows = await store.reads.call("XRANGE", partition.keys.log, "-", "+")
        cold.archive(topic.uuid, number, [row[1][1] for row in rows])
    return topic


def opened(store: Store) -> Access:
    return Access(Broker(store, BrokerOptions(), GroupSettings()), system_caller(store.default.name))


async def fill_memory(store: Store) -> None:
    for part in range(40):
        await store.link.call("SET", f"ballast-{part}", bytes(MEMORY_BYTES // 64))
    await until(lambda: store.memory_percent >= 60)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.name == "headrace.broker.tiering.retention"]
    caplog.clear()
    return [record.getMessage() for record in found]


async def test_a_lake_that_is_away_is_told_once_for_all_partitions_and_again_when_it_is_back(
    store: Store, cold: ColdCopy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topic, retention = await made(store, cold), TieredRetention(store)
    access = opened(store)
    cold.is_away = True
    for _ in range(3):
        await retention.apply(access, topic, [0, 1])
    (told,) = messages(caplog)
    assert told.startswith("records of a tiered topic cannot leave Redis")
    await fill_memory(store)
    for _ in range(3):
        await retention.apply(access, topic, [0, 1])
    (told,) = messages(caplog)
    assert told.startswith("the store is filling up because records cannot leave Redis")
    cold.is_away = False
    for _ in range(2):
        await retention.apply(access, topic, [0, 1])
    (told,) = messages(caplog)
    assert told.startswith("records of a tiered topic leave Redis again")
    assert [(await store.default.partition(topic, number)).local_start for number in (0, 1)] == [8, 8]


async def test_a_topic_that_was_deleted_is_no_reason_why_the_store_fills_up(
    store: Store, cold: ColdCopy, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other, retention = await made(store, cold), await made(store, cold, "returns"), TieredRetention(store)
    access = opened(store)
    cold.is_away = True
    await retention.apply(access, topic, [0, 1])
    cold.is_away = False
    await store.default.catalogue.delete(topic)
    await fill_memory(store)
    messages(caplog)
    await retention.apply(access, other, [0, 1])
    assert messages(caplog) == []


async def test_partitions_that_another_node_leads_are_no_reason_why_the_store_fills_up(
    store: Store, cold: ColdCopy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topic, retention = await made(store, cold), TieredRetention(store)
    access = opened(store)
    cold.is_away = True
    await retention.apply(access, topic, [0, 1])
    cold.is_away = False
    next_node = Store(store.topology.address, node_at(1, "127.0.0.1", 9093), OPTIONS)
    await next_node.start()
    try:
        await until(lambda: list(access.broker.led(topic)) == [0])
        await fill_memory(store)
        messages(caplog)
        for _ in range(2):
            await retention.apply(access, topic, [0])
        (told,) = messages(caplog)
        assert told.startswith("records of a tiered topic leave Redis again")
    finally:
        await next_node.close()


async def test_an_archive_that_is_behind_is_told_when_it_does_not_move(
    store: Store, cold: ColdCopy, caplog: pytest.LogCaptureFixture
) -> None:
    topic, retention = await made(store, cold), TieredRetention(store)
    access = opened(store)
    held = cold.batches[topic.uuid, 0]
    later, held[2:] = held[2:], []
    await retention.apply(access, topic, [0, 1])
    assert messages(caplog) == []
    held.append(later[0])
    await retention.apply(access, topic, [0, 1])
    assert messages(caplog) == []
    await retention.apply(access, topic, [0, 1])
    assert len(messages(caplog)) == 1


async def test_what_was_configured_since_the_round_began_holds(store: Store, cold: ColdCopy) -> None:
    """A slow lake makes a round take long."""
    as_the_round_began, retention = await made(store, cold), TieredRetention(store)
    access = opened(store)
    await store.default.catalogue.set_configs(as_the_round_began, CONFIGS | {"local.retention.bytes": "-2"})
    await retention.apply(access, as_the_round_began, [0, 1])
    topic = (await store.default.partition(as_the_round_began, 0)).current_topic
    await store.default.catalogue.set_configs(topic, {})
    await retention.apply(access, as_the_round_began, [0, 1])
    assert [(await store.default.partition(topic, number)).local_start for number in (0, 1)] == [0, 0]
