"""Nodes hear of each other at once, and an append through one wakes the long polls of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.store.partitions import AnyPartition
from headrace.store.redis import parse_info
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.produced import produce, until


async def test_a_watcher_at_one_node_hears_of_an_append_through_another(open_store: OpenStore) -> None:
    first = await open_store(node_id=0, port=9001)
    second = await open_store(node_id=1, port=9002)
    topic = await first.catalogue.create("orders", 1, {})
    await second.catalogue.load()
    here, there = await first.partition(topic, 0), await second.partition(topic, 0)

    await until(lambda: _live(first, 2))
    for one, other in ((here, there), (there, here)):
        woken = asyncio.Event()
        other.watchers.add(_setting(woken))
        await produce(one, b"news")
        await asyncio.wait_for(woken.wait(), 10)
        assert other.end == one.end


async def test_a_node_that_comes_or_goes_is_known_to_the_others_before_their_next_look(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.store._UPKEEP_EVERY_S", 3600)
    first = await open_store(node_id=0, port=9001)
    second = await open_store(node_id=1, port=9002)
    await until(lambda: _live(first, 2))
    await second.close()
    await until(lambda: _live(first, 1))


async def test_a_node_alone_announces_no_append(open_store: OpenStore) -> None:
    store = await open_store(node_id=0)
    partition = await store.partition(await store.catalogue.create("orders", 1, {}), 0)
    listener = await open_store(node_id=1, port=9999)
    await listener.close()
    await until(lambda: _live(store, 1))
    before = await _publishes(store)
    await produce(partition, b"news")
    assert await _publishes(store) == before


def _live(store: Store, number: int) -> bool:
    return len(store.nodes.live) == number


async def _publishes(store: Store) -> int:
    facts = parse_info(await store.link.call("INFO", "commandstats"))
    return int(facts["cmdstat_publish"].split(",")[0].removeprefix("calls="))


def _setting(event: asyncio.Event) -> Callable[[AnyPartition], None]:
    def watcher(_: AnyPartition) -> None:
        event.set()

    return watcher
