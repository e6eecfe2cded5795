"""Organisations share servers and nodes, and nothing else: topics of one name are two, and no id reaches across."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from headrace.store.cluster.configs import of_group
from headrace.store.log.partition import LogPartition
from headrace.store.organisation import Organisation
from headrace.store.partition.base import Partition
from headrace.store.security.tenants import NO_LIMITS
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.produced import produce, records_in, until
from tests.store.servers import Valkey


async def made(organisation: Organisation, *values: bytes) -> Partition:
    """Partition 0 of a topic `orders`, with records."""
    topic = await organisation.catalogue.create("orders", 1, {})
    partition = await organisation.partition(topic, 0)
    for value in values:
        await produce(partition, value)
    return partition


async def values_in(partition: Partition) -> list[bytes | None]:
    await partition.confirm()
    return [record.value for record in records_in(await partition.read(0, 1 << 20, True))]


async def test_topics_of_one_name_are_two(store: Store, open_store: OpenStore) -> None:
    acme = await store.add_organisation("acme")
    ours, theirs = await made(store.default, b"a", b"b"), await made(acme, b"c")
    assert ours.topic.uuid != theirs.topic.uuid
    other = await open_store()
    found = [
        await one.partition(one.catalogue.by_name["orders"], 0)
        for one in (other.default, await other.add_organisation("acme"))
    ]
    assert [await values_in(one) for one in found] == [[b"a", b"b"], [b"c"]]


async def test_a_new_organisation_is_taken_in_once(store: Store, open_store: OpenStore) -> None:
    """Whoever looks for changes at the same time: a second object of it would cut off the callers of the first."""
    other = await open_store()
    await other.tenants.put("acme", NO_LIMITS)
    await store.tenants.rows.refresh()

    async def look() -> Organisation:
        await store.tenants.follow()
        return store.organisations["acme"]

    found = await asyncio.gather(look(), look())
    assert found[0] is found[1]


async def test_an_id_is_known_in_its_own_organisation_alone(store: Store) -> None:
    acme = await store.add_organisation("acme")
    ours, theirs = await made(store.default), await made(acme)
    assert await store.default.catalogue.find_uuid(theirs.topic.uuid) is None
    assert (theirs.topic.uuid, 0) not in store.default.opened
    assert await acme.catalogue.find_uuid(ours.topic.uuid) is None
    assert store.known_partition(theirs.topic.uuid, 0) is theirs


async def test_deleting_a_topic_leaves_the_other_ones_of_its_name(valkey: Valkey, store: Store) -> None:
    acme = await store.add_organisation("acme")
    ours, theirs = await made(store.default, b"a"), await made(acme, b"b")
    await acme.catalogue.delete(theirs.topic)
    assert theirs.is_gone
    assert await values_in(ours) == [b"a"]
    assert valkey.ask("KEYS", "headrace:acme:*orders*") == []
    assert (await made(acme)).end == 0


async def test_configs_of_a_group_are_its_organisations(store: Store) -> None:
    acme = await store.add_organisation("acme")
    await acme.configs.replace(of_group("readers"), {"share.isolation.level": "read_committed"})
    await store.default.configs.refresh()
    assert (acme.configs.groups(), store.default.configs.groups()) == (["readers"], [])


async def test_every_organisation_follows_other_nodes(store: Store, open_store: OpenStore) -> None:
    """By the upkeep, and long polls by announcements."""
    acme = await store.add_organisation("acme")
    other = await open_store()
    there = await other.add_organisation("acme")
    topic = await acme.catalogue.create("orders", 1, {})
    await until(lambda: "orders" in there.catalogue.by_name)
    here, watched = await acme.partition(topic, 0), await there.partition(topic, 0)
    await store.nodes.refresh()
    woken = asyncio.Event()
    watched.watch(lambda _: woken.set())
    await produce(here, b"a")
    await asyncio.wait_for(woken.wait(), 20)
    await until(lambda: watched.end == 1)


async def test_a_partition_whose_topic_is_deleted_while_nobody_waits_for_it_leaves_no_error_unread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that it is opened for is gone, and so is the topic, once it has been read."""
    unread: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    is_opening, is_deleted = asyncio.Event(), asyncio.Event()
    confirm = LogPartition.confirm

    async def confirm_late(partition: LogPartition) -> None:
        await confirm(partition)
        is_opening.set()
        await is_deleted.wait()

    monkeypatch.setattr(LogPartition, "confirm", confirm_late)
    topic = await store.default.catalogue.create("orders", 1, {})
    waiting = asyncio.create_task(store.default.partition(topic, 0))
    await is_opening.wait()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    del waiting
    await store.default.catalogue.delete(topic)
    is_deleted.set()
    await until(lambda: not store.default._opening)
    await asyncio.sleep(0)  # the task has ended
    gc.collect()
    assert unread == []
