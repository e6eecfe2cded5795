"""An answer is of one moment, although the store is asked while it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from headrace.broker.access import Access
from headrace.broker.background import Background
from headrace.broker.broker import Broker
from headrace.broker.call import Call
from headrace.broker.handlers import metadata
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.security.caller import ANONYMOUS, Caller, system_caller
from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.nodes.endpoints import DEFAULT_LISTENER, node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conftest import StartRedis
from tests.store.produced import produce


@pytest.fixture
async def store(start_redis: StartRedis) -> AsyncIterator[Store]:
    store = Store(parse_address(start_redis().url), node_at(0, "127.0.0.1", 9092), StoreOptions())
    await store.start()
    yield store
    await store.close()


async def test_metadata_names_no_leader_that_is_not_among_its_nodes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node leaves while the second of two topics is looked for."""
    for name in ("one", "two"):
        await store.default.catalogue.create(name, 8, {})
    nodes = store.nodes
    nodes._change([nodes.me, node_at(1, "127.0.0.1", 9093)])
    find = store.default.catalogue.find

    async def find_and_lose(name: str) -> Topic | None:
        if name == "two" and len(nodes.live) > 1:
            nodes._change([nodes.me])
        return await find(name)

    monkeypatch.setattr(store.default.catalogue, "find", find_and_lose)
    broker = Broker(store, BrokerOptions(), GroupSettings())
    access = Access(broker, Caller(ANONYMOUS, "default", DEFAULT_LISTENER))
    call = Call(access, 12, "", cast("Any", None), cast("Any", None))
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in ("one", "two")])
    answer = await metadata.handle(call, request)
    leaders = {partition.leader_id for topic in answer.topics for partition in topic.partitions}
    assert leaders == {node.node_id for node in answer.brokers} == {0}


OLD_RECORDS_GO = {"retention.ms": "1000"}


@pytest.mark.parametrize("format", ["log", "stream"])
@pytest.mark.parametrize("now", [{"retention.ms": "-1"}, {"cleanup.policy": "compact"}])
async def test_retention_goes_by_the_configs_of_when_a_partition_has_its_turn(
    store: Store, format: str, now: dict[str, str]
) -> None:
    """A round takes long where there are many topics: what was changed since it began holds for the rest of it."""
    broker = Broker(store, BrokerOptions(), GroupSettings())
    form = {"headrace.format": format, "message.timestamp.type": "CreateTime"}
    as_the_round_began = await store.default.catalogue.create("orders", 1, form | OLD_RECORDS_GO)
    partition = await store.default.partition(as_the_round_began, 0)
    await produce(partition, b"old", timestamps=[1_000])
    await store.default.catalogue.set_configs(as_the_round_began, form | now)
    access = Access(broker, system_caller("default"))
    await Background(broker)._apply_retention(access, as_the_round_began)
    assert partition.log_start < partition.end
    await store.default.catalogue.set_configs(partition.current_topic, form | OLD_RECORDS_GO)
    await Background(broker)._apply_retention(access, as_the_round_began)
    assert partition.log_start == partition.end


async def test_a_topic_that_is_not_compacted_any_more_is_left_alone_by_a_round_that_began_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(store, BrokerOptions(), GroupSettings())
    as_the_round_began = await store.default.catalogue.create("orders", 1, {"cleanup.policy": "compact"})
    partition = await store.default.partition(as_the_round_began, 0)
    compacted: list[object] = []

    async def compact_if_due(*_: object) -> None:
        compacted.append(partition)

    monkeypatch.setattr(partition, "compact_if_due", compact_if_due)
    access, background = Access(broker, system_caller("default")), Background(broker)
    await background._compact(access, as_the_round_began, 0)
    await store.default.catalogue.set_configs(as_the_round_began, {})
    await background._compact(access, as_the_round_began, 0)
    assert compacted == [partition]
