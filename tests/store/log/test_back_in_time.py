"""A store that lost what it acknowledged: restored from the cache as it was, and what cannot be is a visible gap."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from headrace.store.cluster.catalogue import Placing
from headrace.store.log import trim
from headrace.store.log.partition import LogPartition
from headrace.store.partition import origin
from headrace.store.partition.appending import Appended
from headrace.store.partition.losses import EpochStart, Gap
from headrace.store.partition.tail import ENTRY_BYTES
from headrace.store.redis.errors import PartitionGone
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.conftest import OpenStore, StartValkey
from tests.store.produced import (
    assert_dense,
    log_partition,
    produce,
    records_in,
    same_partition,
    store_of,
    stored,
    stored_entries,
    until,
    values,
)
from tests.store.servers import Valkey
from tests.stores import of_one_server


async def produce_each(partition: LogPartition, first: int, stop: int) -> None:
    """One entry a record, so that it is known which are where."""
    for n in range(first, stop):
        await produce(partition, b"%d" % n, producer=7, sequence=n)


async def go_back(valkey: Valkey, store: Store, checkpoint: Path) -> None:
    """Loses what came after the checkpoint; returns when the store has noticed that it is another server."""
    links = [link for shard in store.topology.shards for link in (shard.link, shard.reads)]
    timelines = [link.timeline for link in links]
    valkey.go_back_to(checkpoint)
    await until(lambda: all(link.timeline > before for link, before in zip(links, timelines, strict=True)))


@pytest.fixture
async def small(open_store: OpenStore) -> LogPartition:
    """A partition whose tail cache holds but a few entries."""
    store = await open_store(tail_cache_bytes=5 * (ENTRY_BYTES + 70))
    topic = await store.default.catalogue.create("orders", 1, {}, Placing(2, {0: [0, 1]}))
    return await log_partition(store, topic, 0)


async def test_entries_that_the_store_lost_are_appended_again_as_they_were(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await produce_each(partition, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(partition, 5, 20)
    before = valkey.stream(partition.keys.log)
    await go_back(valkey, store, checkpoint)
    assert await produce(partition, b"20", producer=7, sequence=20) == Appended(20)
    assert valkey.stream(partition.keys.log)[:20] == before
    assert_dense(stored(valkey, partition))
    assert store.events == {"restored_entries": 15}
    assert partition.leader_epoch == 0


async def test_they_are_restored_before_anybody_asks(valkey: Valkey, partition: LogPartition) -> None:
    checkpoint = valkey.checkpoint()
    await produce_each(partition, 0, 10)
    await go_back(valkey, store_of(partition), checkpoint)
    await until(lambda: valkey.ask("XLEN", partition.keys.log) == 10)


async def test_closing_restores_them_too(valkey: Valkey, store: Store, partition: LogPartition) -> None:
    checkpoint = valkey.checkpoint()
    await produce_each(partition, 0, 10)
    await go_back(valkey, store, checkpoint)
    await store.close()
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(10)]


async def test_what_the_cache_does_not_have_is_a_gap_whose_offsets_are_never_used_again(
    valkey: Valkey, small: LogPartition, open_store: OpenStore
) -> None:
    await produce_each(small, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(small, 5, 20)
    kept = small.tail.first
    assert kept is not None
    assert 5 < kept.base < 20
    await go_back(valkey, store_of(small), checkpoint)
    await small.confirm()
    assert [record.offset for record in stored(valkey, small)] == [*range(5), *range(kept.base, 20)]
    assert small.gaps == [Gap(5, kept.base)]
    assert small.epochs == [EpochStart(0, 0), EpochStart(1, 20)]
    assert await produce(small, b"new") == Appended(20)
    assert stored(valkey, small)[-1].leader_epoch == 1
    assert small.context.events["gaps"] == 1
    again = await same_partition(await open_store(), small)
    assert (again.end, again.epochs, again.gaps) == (21, small.epochs, small.gaps)


async def test_a_reader_in_a_gap_goes_on_behind_it(valkey: Valkey, small: LogPartition) -> None:
    await produce_each(small, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(small, 5, 20)
    await go_back(valkey, store_of(small), checkpoint)
    await small.confirm()
    [gap] = small.gaps
    for offset in range(gap.start, gap.end):
        found = records_in(await small.read(offset, 1 << 20, True))
        assert [record.offset for record in found] == list(range(gap.end, 20))


async def join_behind(partition: LogPartition, open_store: OpenStore) -> Store:
    """A node that joins and does not take the lead of the partition, which was assigned to the first one."""
    joined = await open_store(node_id=1)
    await partition.nodes.refresh()
    assert origin.leads(partition)
    return joined


@pytest.mark.parametrize("another", [False, True])
async def test_if_nothing_can_be_restored_the_end_stays_where_it_was(
    valkey: Valkey, small: LogPartition, open_store: OpenStore, another: bool
) -> None:
    """Also for a broker that opens the log afresh, and for one that does not know of the loss."""
    other = await same_partition(await join_behind(small, open_store), small) if another else None
    await produce_each(small, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(small, 5, 20)
    small.tail.clear()
    await go_back(valkey, store_of(small), checkpoint)
    await small.confirm()
    assert small.gaps == [Gap(5, 20)]
    if other is not None:
        other.end, other.last_base = 5, 4
        assert await produce(other, b"next") == Appended(20)
        assert other.leader_epoch == 1
        return
    fresh = await same_partition(await open_store(), small)
    assert fresh.end == 20
    with pytest.raises(Exception, match="equal or smaller"):
        valkey.ask("XADD", small.keys.log, "NOMKSTREAM", "5-1", "b", "x")
    assert await produce(fresh, b"next") == Appended(20)


async def test_producers_whose_batches_were_lost_are_forgotten_and_others_are_not(
    valkey: Valkey, small: LogPartition
) -> None:
    await produce(small, b"a", producer=1, sequence=0)
    checkpoint = valkey.checkpoint()
    await produce(small, b"b", producer=2, sequence=0)
    await produce_each(small, 0, 10)
    await go_back(valkey, store_of(small), checkpoint)
    await small.confirm()
    assert set(small.producers.by_id) == {1, 7}
    assert await produce(small, b"b", producer=2, sequence=0) == Appended(12)
    assert await produce(small, b"a", producer=1, sequence=0) == Appended(0, duplicate=True)
    assert await produce(small, b"9", producer=7, sequence=9) == Appended(11, duplicate=True)


async def test_a_snapshot_that_survived_does_not_know_of_batches_that_are_lost(
    valkey: Valkey, small: LogPartition, open_store: OpenStore
) -> None:
    checkpoint = valkey.checkpoint()
    await produce(small, b"b", producer=2, sequence=0)
    await produce_each(small, 0, 10)
    await go_back(valkey, store_of(small), checkpoint)
    await small.confirm()
    again = await same_partition(await open_store(), small)
    assert set(again.producers.by_id) == {7}


async def test_the_epoch_is_in_the_catalogue_and_tells_where_the_old_one_ended(
    valkey: Valkey, small: LogPartition
) -> None:
    checkpoint = valkey.checkpoint()
    await produce_each(small, 0, 10)
    small.tail.clear()
    await go_back(valkey, store_of(small), checkpoint)
    await small.confirm()
    assert small.context.catalogue.by_name["orders"].epochs == {0: 1}
    await produce(small, b"new")
    assert (small.epoch_end(0), small.epoch_end(1), small.epoch_end(2)) == ((0, 10), (1, 11), (-1, -1))


async def test_the_epoch_rises_with_each_loss_and_survives_the_loss_of_the_meta(
    valkey: Valkey, small: LogPartition, open_store: OpenStore
) -> None:
    checkpoint = valkey.checkpoint()
    for epoch in (1, 2, 3):
        await produce(small, b"x")
        small.tail.clear()
        await go_back(valkey, store_of(small), checkpoint)
        await small.confirm()
        assert small.leader_epoch == epoch
    valkey.ask("DEL", small.keys.meta)
    again = await same_partition(await open_store(), small)
    assert again.leader_epoch == 3


async def test_log_start_index_and_producers_come_back(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    for n in range(10):
        await produce(partition, b"%d" % n, producer=7, sequence=n, timestamps=[n * 100_000])
    checkpoint = valkey.checkpoint()
    for n in range(10, 20):
        await produce(partition, b"%d" % n, producer=7, sequence=n, timestamps=[n * 100_000])
    await trim.delete_before(partition, 15)
    points = valkey.stream(partition.keys.index)
    await go_back(valkey, store_of(partition), checkpoint)
    await partition.confirm()
    assert int(valkey.ask("HGET", partition.keys.meta, "start")) == 15
    assert valkey.stream(partition.keys.index)[-len(points) + 1 :] == points[1:]
    again = await same_partition(await open_store(), partition)
    assert (again.log_start, again.end, set(again.producers.by_id)) == (15, 20, {7})
    with pytest.raises(KafkaError) as raised:
        again.check_offset(14)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_log_start_that_alone_was_lost_comes_back(valkey: Valkey, partition: LogPartition) -> None:
    """The entries survived; what was written after the last of them did not."""
    await produce_each(partition, 0, 10)
    checkpoint = valkey.checkpoint()
    await trim.delete_before(partition, 8)
    await go_back(valkey, store_of(partition), checkpoint)
    await partition.confirm()
    assert int(valkey.ask("HGET", partition.keys.meta, "start")) == 8


async def test_a_topic_made_in_the_lost_moment_comes_back_with_its_records(valkey: Valkey, store: Store) -> None:
    checkpoint = valkey.checkpoint()
    topic = await store.default.catalogue.create("orders", 1, {"retention.ms": "1000"})
    partition = await log_partition(store, topic, 0)
    await produce_each(partition, 0, 5)
    await go_back(valkey, store, checkpoint)
    assert await produce(partition, b"5", producer=7, sequence=5) == Appended(5)
    assert store.default.catalogue.by_name == {"orders": topic}
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(6)]


async def test_a_topic_deleted_in_the_lost_moment_stays_deleted(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await produce(partition, b"a")
    checkpoint = valkey.checkpoint()
    await store.default.catalogue.delete(partition.topic)
    await go_back(valkey, store, checkpoint)
    await store.default.catalogue.refresh()
    assert store.default.catalogue.by_name == {}
    await until(lambda: not valkey.keys_with("orders"))


@of_one_server
async def test_a_server_that_keeps_nothing_gets_back_what_the_cache_has(
    start_valkey: StartValkey, open_store: OpenStore
) -> None:
    server = start_valkey(appendonly=False)
    store = await open_store(url=server.url)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await produce_each(partition, 0, 10)
    server.restart()
    assert await produce(partition, b"10", producer=7, sequence=10) == Appended(10)
    assert values(stored(server, partition)) == [b"%d" % n for n in range(11)]
    assert partition.leader_epoch == 0


async def test_flushall_is_a_deletion(valkey: Valkey, store: Store, partition: LogPartition) -> None:
    """The same server answers: nobody lost anything, somebody wanted it gone."""
    await produce(partition, b"a")
    valkey.ask("FLUSHALL")
    with pytest.raises(PartitionGone):
        await produce(partition, b"b")
    assert await store.default.catalogue.find("orders") is None
    assert not valkey.keys_with("orders")
    again = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    assert await produce(again, b"c") == Appended(0)


async def test_a_restart_that_lost_nothing_changes_nothing(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await produce_each(partition, 0, 10)
    before = stored_entries(valkey, partition)
    valkey.restart()
    assert await produce(partition, b"10", producer=7, sequence=10) == Appended(10)
    assert stored_entries(valkey, partition)[:-1] == before
    assert store.events == {}


@pytest.mark.parametrize("kill", [True, False])
async def test_an_idempotent_producer_runs_through_restarts_of_the_server(
    valkey: Valkey, partition: LogPartition, kill: bool
) -> None:
    stop = asyncio.Event()
    acknowledged: list[int] = []

    async def run() -> None:
        n = 0
        while not stop.is_set():
            acknowledged.append((await produce(partition, b"%d" % n, producer=7, sequence=n)).base_offset)
            n += 1

    running = asyncio.create_task(run())
    for _ in range(3):
        already = len(acknowledged)
        await until(lambda already=already: len(acknowledged) >= already + 50)  # type: ignore[misc]
        if kill:
            valkey.restart()
        else:
            valkey.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    already = len(acknowledged)
    await until(lambda: len(acknowledged) >= already + 50)
    stop.set()
    await running
    assert acknowledged == list(range(len(acknowledged)))
    assert values(stored(valkey, partition)) == [b"%d" % n for n in acknowledged]


async def test_a_restoration_that_was_cut_short_goes_on(valkey: Valkey, partition: LogPartition) -> None:
    """The stream is made again but the connection is lost before its entries are in it."""
    await produce_each(partition, 0, 10)
    appended = partition.link.send_chunks
    sent = 0

    def cut_at_the_third(chunks):  # type: ignore[no-untyped-def]
        nonlocal sent
        sent += 1
        if sent == 3:
            partition.link.drop("the test cuts it")
        return appended(chunks)

    valkey.ask("DEL", partition.keys.log)
    partition.link.send_chunks = cut_at_the_third  # type: ignore[method-assign]
    assert await produce(partition, b"10", producer=7, sequence=10) == Appended(10)
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(11)]


async def test_another_writer_that_reused_lost_offsets_is_noticed(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await produce_each(partition, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(partition, 5, 10)
    partition.link.drop("the test keeps it away")
    valkey.go_back_to(checkpoint, start=False)
    partition.shard.link.address = msgspec.structs.replace(partition.link.address, path="/nowhere")
    valkey.start()
    valkey.ask("HDEL", partition.keys.meta, "server")  # with it the other one would go on behind a margin
    other = await same_partition(await open_store(), partition)
    assert await produce(other, b"theirs", b"too") == Appended(5)
    partition.shard.link.address = other.link.address
    await until(lambda: partition.link.is_up)
    await partition.confirm()
    assert partition.leader_epoch == 1
    assert partition.gaps == [Gap(7, 10)], "at the others there are records"
    assert await produce(partition, b"next") == Appended(10)
    assert [record.value for record in stored(valkey, partition)][5:] == [b"theirs", b"too", b"next"]
    taken = [await partition.read(offset, 1 << 20, True) for offset in (5, 7)]
    assert [values(records_in(one)) for one in taken] == [[b"theirs", b"too"], [b"next"]]
