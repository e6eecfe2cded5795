"""Nodes hear of each other at once, and an append through one wakes the long polls of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.store.partition.base import Partition
from headrace.store.redis.link import parse_info
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import produce, until


async def test_a_watcher_at_one_node_hears_of_an_append_through_another(open_store: OpenStore) -> None:
    first = await open_store(node_id=0, port=9001)
    second = await open_store(node_id=1, port=9002)
    topic = await first.default.catalogue.create("orders", 1, {})
    await second.default.catalogue.load()
    here, there = await first.default.partition(topic, 0), await second.default.partition(topic, 0)

    await until(lambda: _live(first, 2))
    for one, other in ((here, there), (there, here)):
        woken = asyncio.Event()
        other.watchers.add(_setting(woken))
        await produce(one, b"news")
        await asyncio.wait_for(woken.wait(), 10)
        assert other.end == one.end


async def test_a_node_that_comes_or_goes_is_known_to_the_others_before_their_next_look(
    open_store: OpenStore,
) -> None:
    an_hour_ms = 3_600_000  # the next look comes a quarter of a lease later
    first = await open_store(node_id=0, port=9001, node_lease_ms=an_hour_ms)
    second = await open_store(node_id=1, port=9002, node_lease_ms=an_hour_ms)
    await until(lambda: _live(first, 2))
    await second.close()
    await until(lambda: _live(first, 1))


async def test_a_leader_announces_no_append_once_all_know_that_it_leads(
    open_store: OpenStore, clock: MovableClock
) -> None:
    stores = [await open_store(node_id=node_id, port=9001 + node_id) for node_id in (0, 1)]
    topic = await stores[0].default.catalogue.create("orders", 1, {})
    await stores[1].default.catalogue.load()
    await until(lambda: _live(stores[0], 2))
    leader = next(one for one in stores if one.nodes.leader(topic, 0) == one.nodes.me)
    other = next(one for one in stores if one is not leader)
    partition, follower = await leader.default.partition(topic, 0), await other.default.partition(topic, 0)
    before = await _publishes(leader)
    await produce(partition, b"unsettled")
    await until(lambda: _has_published(leader, before + 1))
    for _ in range(8):  # less than a lease at a time, more than one in all
        clock.advance(leader.options.node_lease_ms // 4)
        await leader.nodes.renew()
        await other.nodes.renew()
    assert leader.nodes.is_settled
    before = await _publishes(leader)
    await produce(partition, b"settled")
    assert await _publishes(leader) == before
    await produce(follower, b"by another")
    await until(lambda: _has_published(leader, before + 1))


async def _has_published(store: Store, number: int) -> bool:
    return await _publishes(store) >= number


async def test_a_change_of_topics_is_announced_until_every_node_has_applied_it(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.store._UPKEEP_EVERY_S", 3_600)  # nobody finds it without being told
    stores = [await open_store(node_id=number, node_lease_ms=3_600_000) for number in range(3)]
    for store in stores:
        await until(lambda store=store: _live(store, 3))  # type: ignore[misc]
    catalogue = stores[0].default.catalogue
    old = await catalogue.create("orders", 1, {})
    for change in (lambda: catalogue.delete(old), lambda: catalogue.create("orders", 2, {})):
        await change()
        await stores[0].announcements.topics_changed("default", catalogue.version)
        assert all(store.default.catalogue.by_name == catalogue.by_name for store in stores)


async def test_a_node_that_does_not_hear_of_a_change_of_topics_is_waited_for_no_longer_than_a_lease(
    open_store: OpenStore,
) -> None:
    first, deaf = await open_store(node_id=0, node_lease_ms=3_000), await open_store(node_id=1, node_lease_ms=3_000)
    await until(lambda: _live(first, 2))
    await deaf.announcements.close()
    await first.default.catalogue.create("orders", 1, {})
    async with asyncio.timeout(10):
        await first.announcements.topics_changed("default", first.default.catalogue.version)
    assert "orders" in deaf.default.catalogue.by_name or not _live(first, 2)


async def test_a_node_that_left_is_not_waited_for(open_store: OpenStore) -> None:
    first = await open_store(node_id=0, node_lease_ms=3_600_000)
    second = await open_store(node_id=1, node_lease_ms=3_600_000)
    await until(lambda: _live(first, 2))
    await second.announcements.close()
    told = asyncio.create_task(first.announcements.topics_changed("default", first.default.catalogue.version + 1))
    await second.nodes.release()
    await second.announcements.nodes_changed()
    async with asyncio.timeout(10):
        await told


async def test_a_node_alone_announces_no_append(open_store: OpenStore) -> None:
    store = await open_store(node_id=0)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
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


def _setting(event: asyncio.Event) -> Callable[[Partition], None]:
    def watcher(_: Partition) -> None:
        event.set()

    return watcher
