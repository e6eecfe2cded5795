"""A store that restarts, or loses its keys: idempotent producers go on, and what is newer in the store stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from headrace.store.cluster.catalogue import Topic
from headrace.store.partition.appending import Appended
from headrace.store.partition.base import Partition
from headrace.store.store import Store
from headrace.wire.errors import KafkaError
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import CONFIGS, all_of, numbers, on, produce_each
from tests.store.produced import new_servers, produce, store_of, until, values, wait_for_a_lease
from tests.store.proxy import Proxy
from tests.store.servers import Valkey


@pytest.fixture(params=CONFIGS)
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def either(store: Store, configs: dict[str, str]) -> Partition:
    """Partition 0 of `orders`, in each format."""
    return await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)


@pytest.fixture
async def behind_proxy(proxy: Proxy, open_store: OpenStore, configs: dict[str, str]) -> Partition:
    """The same, reached through a proxy, with a first record of producer 7."""
    store = await open_store(via=proxy)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    await produce_each(partition, 0, 1)
    return partition


@contextlib.asynccontextmanager
async def another_server(*stores: Store) -> AsyncIterator[None]:
    """What happens inside gives the stores another server; they know it afterwards."""
    links = [store.nodes._leases._link for store in stores]
    timelines = [link.timeline for link in links]
    async with new_servers(*stores):
        yield
    await until(lambda: all(link.timeline > before for link, before in zip(links, timelines, strict=True)))


async def test_a_batch_whose_answer_was_lost_is_known_after_a_long_outage(
    valkey: Valkey, proxy: Proxy, behind_proxy: Partition
) -> None:
    """The broker gave it up; its client sends it again when the store is back."""
    proxy.is_open = False
    trap = proxy.trap("lose reply")
    sending = produce(behind_proxy, b"1", producer=7, sequence=1, timeout_s=0.5)
    await trap.sprung.wait()
    with pytest.raises(KafkaError):
        await sending
    async with another_server(store_of(behind_proxy)):
        valkey.restart()
        proxy.cut()
        proxy.is_open = True
    assert (await produce(behind_proxy, b"1", producer=7, sequence=1)).duplicate
    assert not (await produce(behind_proxy, b"2", producer=7, sequence=2)).duplicate
    assert values(await all_of(behind_proxy)) == numbers(0, 3)


async def test_a_producer_whose_batch_was_found_after_a_short_outage_goes_on(
    valkey: Valkey, proxy: Proxy, behind_proxy: Partition
) -> None:
    proxy.is_open = False
    trap = proxy.trap("lose reply")
    sending = produce(behind_proxy, b"1", producer=7, sequence=1)
    await trap.sprung.wait()
    valkey.restart()
    proxy.cut()
    proxy.is_open = True
    assert not (await sending).duplicate
    await produce_each(behind_proxy, 2, 4)
    assert values(await all_of(behind_proxy)) == numbers(0, 4)


async def test_a_node_that_did_not_see_the_last_batches_does_not_take_their_producers_back(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    """The partition went to another node, the store restarts, the other node leaves."""
    other_store = await open_store()
    other = await on(other_store, either)
    await produce_each(either, 0, 3)
    await produce_each(other, 3, 6)
    async with another_server(store_of(either), other_store):
        valkey.restart()
    await other.confirm()
    await other_store.close()
    assert (await produce(either, b"5", producer=7, sequence=5)).duplicate
    await produce_each(either, 6, 8)
    assert values(await all_of(either)) == numbers(0, 8)


async def test_both_nodes_restore_what_a_store_lost_and_producers_go_on_at_either(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    other_store = await open_store()
    other = await on(other_store, either)
    await produce_each(either, 0, 2)
    await other.confirm()
    checkpoint = valkey.checkpoint()
    await produce_each(either, 2, 6)
    async with another_server(store_of(either), other_store):
        valkey.go_back_to(checkpoint)
    await asyncio.gather(either.confirm(), other.confirm())
    assert (await produce(other, b"5", producer=7, sequence=5)).duplicate
    await produce_each(other, 6, 8)
    await produce_each(either, 8, 10)
    for partition in (either, other):
        assert values(await all_of(partition)) == numbers(0, 10)
        assert partition.gaps == []


async def test_a_broker_that_dies_while_it_restores_leaves_no_batch_without_its_producer(
    valkey: Valkey, either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are appended again one by one; after the second nothing of this broker arrives any more."""
    await produce_each(either, 0, 2)
    checkpoint = valkey.checkpoint()
    await produce_each(either, 2, 8)
    async with another_server(store_of(either)):
        valkey.go_back_to(checkpoint)
    link = either.shard.link
    sends = {"send": link.send, "send_chunks": link.send_chunks}

    def dies(name: str):  # type: ignore[no-untyped-def]
        def send(*arguments: object) -> asyncio.Future[object]:
            if valkey.ask("XLEN", either.keys.log) >= 4:
                return asyncio.get_running_loop().create_future()
            return sends[name](*arguments)  # type: ignore[operator, no-any-return]

        return send

    for name in sends:
        monkeypatch.setattr(link, name, dies(name))
    look = asyncio.create_task(either.confirm())
    await until(lambda: valkey.ask("XLEN", either.keys.log) >= 4)
    other = await on(await open_store(), either)
    assert (await produce(other, b"3", producer=7, sequence=3)).duplicate
    await produce_each(other, 4, 6)
    assert values(await all_of(other)) == numbers(0, 6)
    look.cancel()


async def test_what_is_produced_while_a_lost_log_is_made_again_waits_until_all_is_restored(
    valkey: Valkey, either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads, and finds out first that the log is gone; the producer knows of nothing."""
    await produce_each(either, 0, 5)
    await either.confirm()
    before = await all_of(either)
    store, sending = store_of(either), list[asyncio.Future[Appended]]()
    remake = store.default.catalogue.remake_partition

    async def remake_under_load(topic: Topic, number: int, floor: int) -> bool:
        made = await remake(topic, number, floor)
        sending.append(produce(either, b"5", producer=7, sequence=5))
        for _ in range(3):
            await store.link.call("PING")
        return made

    monkeypatch.setattr(store.default.catalogue, "remake_partition", remake_under_load)
    valkey.ask("DEL", either.keys.log)
    await either._share_look()
    await asyncio.gather(*sending)
    found = await all_of(either)
    assert found[:5] == before
    assert values(found) == numbers(0, 6)
    assert either.gaps == []
    assert await all_of(await on(await open_store(), either)) == found


async def test_a_log_that_is_deleted_under_load_loses_nothing_that_the_cache_has(
    valkey: Valkey, either: Partition
) -> None:
    """Again and again, with a reader that looks all the time."""
    sent, stop = 0, asyncio.Event()

    async def read() -> None:
        while not stop.is_set():
            await either.confirm()
            await asyncio.sleep(0)

    async def send() -> None:
        nonlocal sent
        while not stop.is_set():
            await produce(either, b"%d" % sent, producer=7, sequence=sent)
            sent += 1

    work = [asyncio.create_task(read()), asyncio.create_task(send())]
    for _ in range(20):
        goal = sent + 3
        await until(lambda goal=goal: sent >= goal)  # type: ignore[misc]
        valkey.ask("DEL", either.keys.log)
    goal = sent + 3
    await until(lambda: sent >= goal)
    stop.set()
    await asyncio.gather(*work)
    assert values(await all_of(either)) == numbers(0, sent)
    assert either.gaps == []


async def test_a_log_with_one_batch_is_restored_as_often_as_it_is_deleted(valkey: Valkey, either: Partition) -> None:
    await produce_each(either, 0, 1)
    for _ in range(3):
        valkey.ask("DEL", either.keys.log)
        either.doubt()
        assert values(await all_of(either)) == [b"0"]


async def test_what_lies_between_the_store_and_the_cache_is_a_gap(
    valkey: Valkey, store: Store, either: Partition
) -> None:
    offsets = await produce_each(either, 0, 5)
    checkpoint = valkey.checkpoint()
    offsets += await produce_each(either, 5, 20)
    store.tails.limit_bytes = store.tails.size_bytes // 4
    offsets += await produce_each(either, 20, 21)
    first = either.tail.first
    assert first is not None
    async with another_server(store):
        valkey.go_back_to(checkpoint)
    await either.confirm()
    assert [(gap.start, gap.end) for gap in either.gaps] == [(offsets[4] + 1, first.base)]
    assert either.leader_epoch == 1
    kept = [number for number, offset in enumerate(offsets) if offset >= first.base]
    assert values(await all_of(either)) == numbers(0, 5) + [b"%d" % number for number in kept]
    await produce_each(either, 21, 22)


async def test_what_a_deleted_log_held_before_the_cache_is_a_gap(
    valkey: Valkey, store: Store, either: Partition, open_store: OpenStore
) -> None:
    offsets = await produce_each(either, 0, 20)
    store.tails.limit_bytes = store.tails.size_bytes // 4
    offsets += await produce_each(either, 20, 21)
    first = either.tail.first
    assert first is not None
    start = (await either.find_earliest(), first.base)
    valkey.ask("DEL", either.keys.log)
    either.doubt()
    await either.confirm()
    for partition in (either, await on(await open_store(), either)):
        assert [(gap.start, gap.end) for gap in partition.gaps] == [start]
        assert (partition.leader_epoch, partition.log_start) == (1, first.base)
    assert store.events["gaps"] == 1
    kept = [b"%d" % number for number, offset in enumerate(offsets) if offset >= first.base]
    assert values(await all_of(either)) == kept
    await produce_each(either, 21, 22)


@pytest.mark.parametrize("next_node", [0, 1])
async def test_what_was_restored_before_a_restart_or_a_move_is_a_gap_once_it_is_lost(
    valkey: Valkey, open_store: OpenStore, configs: dict[str, str], next_node: int
) -> None:
    """The next node's cache has none of it: where it begins is known from the store alone."""
    store = await open_store(node_id=0, index_interval_bytes=1)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    offsets = await produce_each(partition, 0, 3)
    for at in (3, 6):
        await empty(valkey, partition)
        offsets += await produce_each(partition, at, at + 3)
    assert (values(await all_of(partition)), partition.gaps) == (numbers(0, 9), [])
    await store.close()
    partition = await on(await open_store(node_id=next_node, index_interval_bytes=1), partition)
    await produce_each(partition, 9, 12)
    await empty(valkey, partition)
    [gap] = partition.gaps
    assert gap.start <= offsets[0]
    assert gap.end > offsets[-1]
    assert values(await all_of(partition)) == numbers(9, 12)


async def empty(valkey: Valkey, partition: Partition) -> None:
    """The store loses all of a partition; returns when what the cache has of it is there again."""
    valkey.ask("DEL", partition.keys.log, *partition.keys.all())
    partition.doubt()
    await partition.confirm()


async def test_what_was_deleted_on_purpose_before_the_cache_is_no_gap(
    valkey: Valkey, store: Store, either: Partition
) -> None:
    await produce_each(either, 0, 20)
    await either.delete_before(either.end)
    store.tails.limit_bytes = store.tails.size_bytes // 4
    await produce_each(either, 20, 21)
    first = either.tail.first
    assert first is not None
    await either.delete_before(max(first.base, either.log_start))
    valkey.ask("DEL", either.keys.log)
    either.doubt()
    assert values(await all_of(either)) == [b"20"]
    assert (either.gaps, either.leader_epoch) == ([], 0)


async def test_a_producer_that_another_node_forgot_is_not_refused(
    clock: MovableClock, either: Partition, open_store: OpenStore
) -> None:
    """It was silent for long; the node that led meanwhile removed its state, the one that leads again knows it."""
    other_store = await open_store()
    other = await on(other_store, either)
    await produce_each(either, 0, 3)
    await other.confirm()
    clock.advance(other_store.options.producer_expiration_ms + 1000)
    await other.save_producers()
    await wait_for_a_lease(either)
    await produce_each(either, 3, 5)
    assert values(await all_of(either)) == numbers(0, 5)


async def test_a_partition_that_cannot_be_read_does_not_keep_others_from_being_restored(
    valkey: Valkey, store: Store, configs: dict[str, str]
) -> None:
    """Nobody asks for either: the store is restored by itself."""
    topic = await store.default.catalogue.create("orders", 2, configs)
    spoilt, lost = [await store.default.partition(topic, number) for number in range(2)]
    await produce_each(lost, 0, 2)
    valkey.ask("DEL", spoilt.keys.log)
    valkey.ask("SET", spoilt.keys.log, "not a log")
    checkpoint = valkey.checkpoint()
    await produce_each(lost, 2, 6)
    async with another_server(store):
        valkey.go_back_to(checkpoint)
    await until(lambda: valkey.ask("XLEN", lost.keys.log) == 6)
    assert values(await all_of(lost)) == numbers(0, 6)


async def test_a_store_that_answers_later_than_a_look_may_take_is_looked_at_to_the_end(
    either: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overdue batches are answered between the parts of the wait, and what was asked for counts when it comes."""
    await produce_each(either, 0, 3)
    monkeypatch.setattr("headrace.store.partition.appending._LOOK_S", 0)
    either.doubt()
    await produce_each(either, 3, 6)
    assert values(await all_of(either)) == numbers(0, 6)
