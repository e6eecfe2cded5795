"""Topics on a store whose replicas are away: changes are refused beforehand, and cut deletions are finished later."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from headrace.store.cluster.catalogue import Catalogue, Topic
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.cluster.replicas import MeantReplicas
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.replicas import NotEnoughReplicas
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.replicated import ReplicatedServers, replicated
from tests.store.produced import produce, until

FORMATS = pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers") as started:
        yield started


@pytest.fixture
async def stores(servers: ReplicatedServers) -> AsyncIterator[list[Store]]:
    """Two nodes whose topics have to be on a replica."""
    opened = [Store(parse_address(servers.url), node_at(at, "127.0.0.1", 9092), StoreOptions()) for at in range(2)]
    for store in opened:
        await store.start()
        store.policies.set_defaults({"min.insync.replicas": "2"})
    yield opened
    for store in opened:
        await store.close()


async def made(store: Store, configs: dict[str, str]) -> Topic:
    """A topic with a record."""
    topic = await store.default.catalogue.create("orders", 2, configs)
    await produce(await store.default.partition(topic, 0), b"x")
    return topic


def keys_of_orders(servers: ReplicatedServers) -> set[bytes]:
    """Without those that WAIT needs, which expire."""
    return {key for key in servers.primary.ask("KEYS", "*orders*") if not key.endswith(b":touched")}


CHANGES: dict[str, Callable[[Catalogue, Topic], Awaitable[object]]] = {
    "create": lambda catalogue, topic: catalogue.create("orders-2", 2, topic.configs),
    "add partitions": lambda catalogue, topic: catalogue.add_partitions(topic, 3),
    "set configs": lambda catalogue, topic: catalogue.set_configs(topic, {**topic.configs, "retention.ms": "1"}),
    "delete": lambda catalogue, topic: catalogue.delete(topic),
}


@FORMATS
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_is_known_to_reach_too_few_replicas_is_refused_before_anything_is_written(
    servers: ReplicatedServers,
    stores: list[Store],
    configs: dict[str, str],
    change: Callable[[Catalogue, Topic], Awaitable[object]],
) -> None:
    store = stores[0]
    topic = await made(store, configs)
    before = keys_of_orders(servers), servers.primary.ask("HGETALL", store.default.keys.topics)
    servers.replicas[0].kill()
    servers.wait_in_step(0)
    await store.replicas.keep()
    with pytest.raises(NotEnoughReplicas):
        await change(store.default.catalogue, topic)
    assert before == (keys_of_orders(servers), servers.primary.ask("HGETALL", store.default.keys.topics))
    assert store.default.catalogue.by_name == {"orders": topic}


@FORMATS
@pytest.mark.parametrize("survivor", [0, 1], ids=["by the same node", "by another node"])
async def test_a_deletion_that_too_few_replicas_confirmed_is_finished_once_they_do(
    servers: ReplicatedServers,
    stores: list[Store],
    monkeypatch: pytest.MonkeyPatch,
    configs: dict[str, str],
    survivor: int,
) -> None:
    topic = await made(stores[0], configs)
    keys = keys_of_orders(servers)
    await until(lambda: "orders" in stores[1].default.catalogue.by_name)
    servers.freeze(servers.replicas[0])
    try:
        with monkeypatch.context() as hurried:
            hurried.setattr(stores[0].shards[0].replicas, "timeout_s", 0.1)
            with pytest.raises(NotConfirmed):
                await stores[0].default.catalogue.delete(topic)
        if survivor == 1:
            await end(stores[0])
        assert keys_of_orders(servers) == keys, "the replica may take over, and would have the topic without them"
    finally:
        servers.thaw(servers.replicas[0])
    await until(lambda: not keys_of_orders(servers))
    await until(lambda: not servers.primary.ask("EXISTS", stores[0].default.keys.deleted_topics))


@FORMATS
async def test_a_topic_is_not_made_again_before_its_deletion_is_confirmed(
    servers: ReplicatedServers, stores: list[Store], monkeypatch: pytest.MonkeyPatch, configs: dict[str, str]
) -> None:
    catalogue, keys = stores[0].default.catalogue, stores[0].default.keys
    topic = await made(stores[0], configs)
    servers.freeze(servers.replicas[0])
    try:
        with monkeypatch.context() as hurried:
            hurried.setattr(stores[0].shards[0].replicas, "timeout_s", 0.1)
            with pytest.raises(NotConfirmed):
                await catalogue.delete(topic)
            with pytest.raises(KafkaError) as refused:
                await catalogue.create("orders", 1, configs)
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert not servers.primary.ask("HEXISTS", keys.topics, "orders")
    finally:
        servers.thaw(servers.replicas[0])
    await until(lambda: not servers.primary.ask("EXISTS", keys.deleted_topics))
    again = await catalogue.create("orders", 1, configs)
    assert await produce(await stores[0].default.partition(again, 0), b"new")


async def end(store: Store) -> None:
    """As if the process had died."""
    for task in list(store._tasks):
        task.cancel()
    await asyncio.gather(*store._tasks, return_exceptions=True)


async def test_nobody_looks_for_deletions_while_none_is_unfinished(
    stores: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogues = [store.default.catalogue for store in stores]
    await catalogues[0].delete(await made(stores[0], {}))
    await until(lambda: len({one.version for one in catalogues}) == 1 and not any(one.must_sweep for one in catalogues))
    rounds: Counter[MeantReplicas] = Counter()
    looked: list[Catalogue] = []

    async def keep(replicas: MeantReplicas) -> None:
        rounds[replicas] += 1

    async def look(catalogue: Catalogue) -> None:
        looked.append(catalogue)

    monkeypatch.setattr(MeantReplicas, "keep", keep)
    monkeypatch.setattr(Catalogue, "sweep", look)
    await until(lambda: all(rounds[store.replicas] > 1 for store in stores))  # upkeep went on
    assert not looked
