"""Leader epochs that have to rise do so before anybody asks for the partition; each server run is searched once."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.store.cluster.catalogue import Placing
from headrace.store.redis.link import Argument
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import produce_each
from tests.store.partition.test_origin import crash
from tests.store.produced import until
from tests.store.servers import Valkey
from tests.stores import of_one_server

CONFIGS = [{}, {"headrace.format": "stream"}]
FORMATS = pytest.mark.parametrize("configs", CONFIGS, ids=["log", "stream"])


def shown_epochs(store: Store, topic: str = "orders") -> dict[int, int]:
    return store.default.catalogue.by_name[topic].epochs


def count_metas_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Argument]:
    """The metas that are looked at, from now on."""
    pipeline = store.link.pipeline
    read: list[Argument] = []

    async def counted(*commands: tuple[Argument, ...]) -> list[Any]:
        read.extend(command[1] for command in commands if command[0] == "HMGET")
        return await pipeline(*commands)

    monkeypatch.setattr(store.link, "pipeline", counted)
    return read


@FORMATS
async def test_epochs_have_risen_before_a_partition_is_asked_for(
    valkey: Valkey, store: Store, open_store: OpenStore, configs: dict[str, str]
) -> None:
    topic = await store.default.catalogue.create("orders", 3, configs)
    await produce_each(await store.default.partition(topic, 1), 0, 5)
    await crash(store)
    valkey.restart()
    again = await open_store(node_id=0)
    assert shown_epochs(again) == {}
    await again.takeovers.start()
    assert shown_epochs(again) == {0: 1, 1: 1, 2: 1}


@FORMATS
async def test_logs_that_were_left_in_order_are_not_even_opened(
    valkey: Valkey, store: Store, open_store: OpenStore, configs: dict[str, str]
) -> None:
    topic = await store.default.catalogue.create("orders", 1, configs)
    await produce_each(await store.default.partition(topic, 0), 0, 5)
    await store.close()
    valkey.restart()
    again = await open_store(node_id=0)
    await again.takeovers.start()
    assert (shown_epochs(again), again.default.partitions) == ({}, [])


@of_one_server
async def test_a_server_run_is_searched_once(
    valkey: Valkey, store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.default.catalogue.create("orders", 600, {})
    first = count_metas_read(store, monkeypatch)
    await store.takeovers.start()
    assert len(first) == 600
    await crash(store)
    again = await open_store(node_id=0)
    second = count_metas_read(again, monkeypatch)
    await again.takeovers.start()
    assert second == []
    valkey.restart()
    await until(lambda: len(second) >= 600)  # this node lives, but others may have died with the server


async def test_a_node_waits_for_what_another_one_raises_and_takes_it_in(valkey: Valkey, open_store: OpenStore) -> None:
    stores = [await open_store(node_id=node_id) for node_id in (0, 1)]
    await stores[0].nodes.refresh()
    halves = Placing(assignments={number: [number % 2] for number in range(8)})
    await stores[0].default.catalogue.create("orders", 8, {}, halves)
    for store in stores:
        await crash(store)
    valkey.restart()
    one, other = [await open_store(node_id=node_id) for node_id in (0, 1)]
    await one.nodes.refresh()
    one.spawn(one.takeovers.start())
    await until(lambda: sorted(shown_epochs(one)) == [0, 2, 4, 6])
    await other.takeovers.start()
    assert len(shown_epochs(other)) == 8
    await until(lambda: len(shown_epochs(one)) == 8)
