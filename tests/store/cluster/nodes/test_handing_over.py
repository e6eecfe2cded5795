"""A node that leaves: its partitions are closed one by one, its lease is given back whatever becomes of one, and it
waits for the others to know that."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace.store.cluster.nodes.endpoints import Registration
from headrace.store.leaving import leave_led
from headrace.store.redis.errors import RedisError
from tests.store.conftest import OpenStore
from tests.store.produced import produce, until

LEASE_MS = 60_000


async def test_a_partition_that_cannot_be_closed_keeps_neither_others_nor_the_lease(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leaving = await open_store(node_lease_ms=LEASE_MS)
    topic = await leaving.default.catalogue.create("orders", 2, {})
    moving, other = [await leaving.default.partition(topic, number) for number in range(2)]
    saved: list[int] = []

    async def refuse() -> None:
        raise RedisError("MOVED 12305 127.0.0.1:7000")

    async def save() -> None:
        saved.append(other.number)

    monkeypatch.setattr(moving, "save_producers", refuse)
    monkeypatch.setattr(other, "save_producers", save)
    with caplog.at_level(logging.WARNING):
        await leaving.hand_over()
    assert saved == [other.number]
    assert "not all partitions were closed cleanly" in caplog.messages
    staying = await open_store(node_id=1, node_lease_ms=LEASE_MS)
    await until(lambda: [node.id for node in staying.nodes.live] == [1])


async def test_a_node_that_leaves_waits_until_the_others_do_not_list_it(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, *staying = [await open_store(node_id=number, node_lease_ms=LEASE_MS) for number in range(3)]
    for one in (leaving, *staying):
        await until(lambda one=one: len(one.nodes.live) == 3)  # type: ignore[misc]
    may_look, looks = asyncio.Event(), asyncio.Event()
    look = staying[1].nodes.look_again

    async def look_later() -> None:
        looks.set()
        await may_look.wait()
        await look()

    monkeypatch.setattr(staying[1].nodes, "look_again", look_later)
    monkeypatch.setattr("headrace.store.cluster.announcements._KNOWN_S", 60.0)
    left = asyncio.create_task(leaving.hand_over())
    await asyncio.wait_for(looks.wait(), 10)
    await until(lambda: [node.id for node in staying[0].nodes.live] == [1, 2])
    await asyncio.wait([left], timeout=0)
    assert not left.done()
    may_look.set()
    await asyncio.wait_for(left, 10)
    assert [node.id for node in staying[1].nodes.live] == [1, 2]


async def test_a_node_that_hears_nothing_holds_up_none_that_leaves(open_store: OpenStore) -> None:
    leaving, deaf = [await open_store(node_id=number, node_lease_ms=LEASE_MS) for number in range(2)]
    await until(lambda: len(leaving.nodes.live) == 2)
    await deaf.announcements.close()
    await asyncio.wait_for(leaving.hand_over(), 10)


async def test_nodes_that_leave_together_do_not_wait_for_each_other(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.cluster.announcements._KNOWN_S", 60.0)
    stores = [await open_store(node_id=number, node_lease_ms=LEASE_MS) for number in range(3)]
    for one in stores:
        await until(lambda one=one: len(one.nodes.live) == 3)  # type: ignore[misc]
    async with asyncio.timeout(10):
        await asyncio.gather(*(one.hand_over() for one in stores[:2]))
    await until(lambda: [node.id for node in stores[2].nodes.live] == [2])


async def test_handing_over_does_not_wait_for_partitions_that_nobody_used(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = await open_store(node_lease_ms=LEASE_MS)

    async def take_long(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("headrace.store.store._LEAVE_UNUSED_S", 60.0)
    monkeypatch.setattr(leaving.default.catalogue, "leave_unused", take_long)
    await asyncio.wait_for(leaving.hand_over(), 10)


async def test_a_renewal_under_way_does_not_take_the_place_again_that_was_given_up(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, staying = [await open_store(node_id=number, node_lease_ms=LEASE_MS) for number in range(2)]
    await until(lambda: len(leaving.nodes.live) == len(staying.nodes.live) == 2)
    renew, renewed, goes_on = leaving.leases.renew, asyncio.Event(), asyncio.Event()

    async def answer_later(mine: Registration) -> bool:
        is_ours = await renew(mine)
        renewed.set()
        await goes_on.wait()
        return is_ours

    monkeypatch.setattr(leaving.leases, "renew", answer_later)
    renewal = asyncio.create_task(leaving.nodes.renew())
    await asyncio.wait_for(renewed.wait(), 10)
    await asyncio.wait_for(leaving.hand_over(), 10)
    goes_on.set()
    await asyncio.wait_for(renewal, 10)
    assert not leaving.nodes.lease_is_valid
    await staying.nodes.refresh()
    assert [node.id for node in staying.nodes.live] == [1]


@pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])
async def test_logs_are_closed_cleanly_although_all_nodes_leave_at_once_and_are_written_to_until_they_end(
    open_store: OpenStore, configs: dict[str, str]
) -> None:
    stores = [await open_store(node_id=number, node_lease_ms=LEASE_MS) for number in range(2)]
    for one in stores:
        await until(lambda one=one: len(one.nodes.live) == 2)  # type: ignore[misc]
    topic = await stores[0].default.catalogue.create("orders", 2, configs)
    await stores[1].default.catalogue.refresh()
    for one in stores:
        for number in range(2):
            if one.nodes.leads(topic, number):
                await produce(await one.default.partition(topic, number), b"before")
    await asyncio.gather(*(one.hand_over() for one in stores))
    for one in stores:
        one.nodes.step_down()
        for number in range(2):  # to each of them the other one is gone
            await produce(await one.default.partition(topic, number), b"after")
    ends = [(await stores[1].default.partition(topic, number)).end for number in range(2)]
    for one in stores:
        await one.close()
    staying = await open_store(node_id=2, node_lease_ms=LEASE_MS)
    for number in range(2):
        left = await staying.link.call("HGET", topic.keys(staying.default.keys, number).meta, "left")
        assert left is not None
        assert int(left) == ends[number]
        assert (await staying.default.partition(topic, number)).end == ends[number]


async def test_an_append_after_a_partition_was_left_takes_it_up_again(open_store: OpenStore) -> None:
    store = await open_store()
    topic = await store.default.catalogue.create("orders", 1, {})
    partition = await store.default.partition(topic, 0)
    await produce(partition, b"before")
    await leave_led([partition])
    assert await store.link.call("HGET", partition.keys.meta, "left") == b"1"
    await produce(partition, b"after")
    assert await store.link.call("HGET", partition.keys.meta, "left") is None
