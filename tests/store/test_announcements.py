"""An append through one node wakes the long polls of another that knows the partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.store.partitions import AnyPartition
from tests.store.conftest import OpenStore
from tests.store.produced import produce, until


async def test_a_watcher_at_one_node_hears_of_an_append_through_another(open_store: OpenStore) -> None:
    first = await open_store(node_id=0, port=9001)
    second = await open_store(node_id=1, port=9002)
    topic = await first.catalogue.create("orders", 1, {})
    await second.catalogue.load()
    here, there = await first.partition(topic, 0), await second.partition(topic, 0)

    async def both_know_each_other() -> bool:
        await first.nodes.refresh()
        await first.announcements.keep_up()
        return len(first.nodes.live) == len(second.nodes.live) == 2

    await until(both_know_each_other)
    for one, other in ((here, there), (there, here)):
        woken = asyncio.Event()
        other.watchers.add(_setting(woken))
        await produce(one, b"news")
        await asyncio.wait_for(woken.wait(), 10)
        assert other.end == one.end


async def test_a_node_alone_announces_nothing(open_store: OpenStore) -> None:
    store = await open_store(node_id=0)
    partition = await store.partition(await store.catalogue.create("orders", 1, {}), 0)
    listener = await open_store(node_id=1, port=9999)
    await listener.close()
    await store.nodes.refresh()
    await produce(partition, b"news")
    stats = (await store.link.call("INFO", "commandstats")).decode()
    assert "cmdstat_publish" not in stats


def _setting(event: asyncio.Event) -> Callable[[AnyPartition], None]:
    def watcher(_: AnyPartition) -> None:
        event.set()

    return watcher
