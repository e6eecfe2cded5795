"""Nothing is answered from memory after a sign of trouble: another writer may have appended meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from headrace.store.confidence import Level
from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.redis.errors import StoreAway
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.conftest import OpenStore
from tests.store.produced import log_partition, produce, same_partition, store_of, until
from tests.store.proxy import Proxy
from tests.store.servers import Valkey


@pytest.fixture
async def partition(proxy: Proxy, open_store: OpenStore) -> LogPartition:
    """Partition 0 of `orders`, reached through the proxy by a node that hears no announcement: they may be lost."""
    store = await open_store(via=proxy)
    await store.announcements.close()
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await produce(partition, b"a", producer=7, sequence=0)
    return partition


@pytest.fixture
async def other(partition: LogPartition, open_store: OpenStore) -> LogPartition:
    """The same partition as another node sees it."""
    return await same_partition(await open_store(), partition)


async def reconnect(proxy: Proxy, store: Store) -> None:
    links = [link for shard in store.topology.shards for link in (shard.link, shard.reads)]
    before = {link: link.generation for link in links}
    proxy.cut()
    await until(lambda: all(link.generation > before[link] and link.is_up for link in links))


async def test_the_end_after_a_reconnect_counts_what_others_appended(
    proxy: Proxy, partition: LogPartition, other: LogPartition
) -> None:
    assert partition.is_confirmed
    await produce(other, b"b")
    await reconnect(proxy, store_of(partition))
    assert not partition.is_confirmed
    await partition.confirm()
    assert (partition.is_confirmed, partition.end) == (True, 2)
    partition.check_offset(2)


async def test_a_duplicate_of_what_another_node_appended_is_recognised_after_a_reconnect(
    proxy: Proxy, partition: LogPartition, other: LogPartition
) -> None:
    await produce(other, b"b", producer=7, sequence=1)
    await reconnect(proxy, store_of(partition))
    assert await produce(partition, b"b", producer=7, sequence=1) == Appended(1, duplicate=True)


async def test_a_sequence_is_not_called_out_of_order_without_a_look(
    partition: LogPartition, other: LogPartition
) -> None:
    await produce(other, b"b", producer=7, sequence=1)
    assert await produce(partition, b"c", producer=7, sequence=2) == Appended(2)
    with pytest.raises(KafkaError) as raised:
        await produce(partition, b"e", producer=7, sequence=4)
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_without_a_connection_nothing_is_confirmed(proxy: Proxy, partition: LogPartition) -> None:
    proxy.is_open = False
    proxy.cut()
    await until(lambda: not partition.link.is_up)
    assert not partition.is_confirmed
    with pytest.raises(StoreAway) as raised:
        await partition.confirm()
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    proxy.is_open = True
    await until(lambda: partition.link.is_up)
    await partition.confirm()


async def test_a_refusal_is_a_sign_of_trouble(
    partition: LogPartition, other: LogPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(other, b"b")
    doubts: list[Level] = []

    def doubt() -> None:
        partition.confidence.doubt()
        doubts.append(partition.confidence.level(partition.outlook.view))

    monkeypatch.setattr(partition, "doubt", doubt)
    await produce(partition, b"c")
    assert (doubts, partition.end) == ([Level.STALE], 3)


async def test_a_sign_of_trouble_during_a_look_is_not_forgotten(valkey: Valkey, partition: LogPartition) -> None:
    partition.doubt()
    valkey.pause()
    looking = asyncio.create_task(partition.confirm())
    for _ in range(5):  # the look has asked, and waits
        await asyncio.sleep(0)
    look = partition._confirming
    partition.doubt()
    valkey.resume()
    await looking
    assert partition._confirming is not look


async def test_those_who_wait_share_one_look(valkey: Valkey, partition: LogPartition) -> None:
    partition.doubt()
    valkey.ask("CONFIG", "RESETSTAT")
    await asyncio.gather(*(partition.confirm() for _ in range(50)))
    assert valkey.command_counts()["xrange"] == 1


async def test_a_lease_that_ran_out_is_a_sign_of_trouble(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(node_lease_ms=60_000)
    await store.announcements.close()
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    other = await same_partition(await open_store(), partition)
    await store.nodes.refresh()
    await partition.confirm()
    await produce(other, b"b")
    assert partition.is_confirmed
    store.nodes._valid_until = 0.0  # as after a pause of the process that was longer than the lease
    assert not partition.is_confirmed
    await partition.confirm()
    assert partition.end == 1
    assert await produce(partition, b"c") == Appended(1)
    await produce(other, b"d")
    await store.nodes.renew()
    assert not partition.is_confirmed
    await partition.confirm()
    assert partition.end == 3


async def test_a_change_of_the_nodes_is_a_sign_of_trouble(store: Store, open_store: OpenStore) -> None:
    topic = await store.default.catalogue.create("orders", 1, {})
    partition = await log_partition(store, topic, 0)
    other = await open_store()
    await store.nodes.refresh()
    assert not partition.is_confirmed
    await produce(await same_partition(other, partition), b"a")
    await partition.confirm()
    assert partition.end == 1


async def test_a_reader_learns_of_a_log_start_that_another_node_moved(
    partition: LogPartition, other: LogPartition
) -> None:
    for n in range(5):
        await produce(partition, b"%d" % n)
    other.doubt()
    await other.confirm()
    await partition.save_start(4)
    await partition.link.call("XTRIM", partition.keys.log, "MINID", "=", "4-0")
    with pytest.raises(KafkaError) as raised:
        await other.read(1, 1000, True)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_look_during_an_append_counts_its_entry_once(partition: LogPartition) -> None:
    for n in range(50):
        futures = [produce(partition, b"%d" % n)]
        partition.doubt()
        looks = [partition.confirm() for _ in range(3)]
        futures.append(produce(partition, b"%d again" % n))
        await asyncio.gather(*futures, *looks)
    assert partition.end == 101
    assert partition.index.entries == await partition.link.call("XLEN", partition.keys.log)
    assert len(partition.tail) == partition.index.entries


async def test_waiting_readers_are_woken_by_what_a_look_finds(
    proxy: Proxy, partition: LogPartition, other: LogPartition
) -> None:
    woken = asyncio.Event()
    partition.watchers.add(lambda _: woken.set())
    await produce(other, b"b")
    await reconnect(proxy, store_of(partition))
    await partition.confirm()
    assert woken.is_set()
