"""Appending: an entry's id is its offset, order is kept, small batches share an entry, a lost stream is made good."""

from __future__ import annotations

import asyncio

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.partition.tail import ENTRY_BYTES
from headrace.store.redis.errors import PartitionGone
from headrace.store.store import Store
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from tests.store.conftest import OpenStore
from tests.store.produced import assert_dense, produce, same_partition, store_of, stored, stored_entries, until, values
from tests.store.servers import Valkey


async def test_an_entrys_id_is_the_offset_of_its_first_record(valkey: Valkey, partition: LogPartition) -> None:
    assert await produce(partition, b"a", b"b", b"c") == Appended(0)
    assert await produce(partition, b"d") == Appended(3)
    assert [base for base, _ in stored_entries(valkey, partition)] == [0, 3]
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c", b"d"]
    assert partition.end == 4


async def test_each_batch_carries_its_offset_and_the_leader_epoch(valkey: Valkey, partition: LogPartition) -> None:
    await asyncio.gather(*(produce(partition, b"x", b"y") for _ in range(3)))
    assert [(record.offset, record.leader_epoch) for record in stored(valkey, partition)] == [(n, 0) for n in range(6)]


async def test_what_arrives_in_one_turn_or_during_an_append_is_joined_in_order(
    valkey: Valkey, partition: LogPartition
) -> None:
    valkey.pause()
    in_one_turn = [produce(partition, b"%d" % n) for n in range(30)]
    await asyncio.sleep(0)
    during_the_append = [produce(partition, b"%d" % n) for n in range(30, 60)]
    await asyncio.sleep(0)
    during_the_append += [produce(partition, b"%d" % n) for n in range(60, 100)]
    valkey.resume()
    appended = await asyncio.gather(*in_one_turn, *during_the_append)
    assert [one.base_offset for one in appended] == list(range(100))
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(100)]
    assert len(stored_entries(valkey, partition)) == 2


async def test_a_joined_entry_keeps_to_its_bound_and_a_larger_batch_goes_alone(
    valkey: Valkey, open_store: OpenStore
) -> None:
    store = await open_store(append_entry_bytes=2000)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
    sizes = [300] * 20 + [5000] + [300] * 20
    await asyncio.gather(*(produce(partition, b"x" * size) for size in sizes))
    batches = [[header.length for _, header in iter_headers(data)] for _, data in stored_entries(valkey, partition)]
    assert [len(value or b"") for value in values(stored(valkey, partition))] == sizes
    assert all(sum(lengths) <= 2000 or len(lengths) == 1 for lengths in batches)
    assert len([lengths for lengths in batches if len(lengths) > 3]) >= 6


async def test_partitions_do_not_wait_for_one_another(valkey: Valkey, store: Store) -> None:
    topic = await store.default.catalogue.create("orders", 8, {})
    partitions = [await store.default.partition(topic, number) for number in range(8)]
    valkey.pause()
    futures = [produce(partition, b"x") for partition in partitions]
    assert not any(partition.writer.is_idle for partition in partitions)
    valkey.resume()
    assert await asyncio.gather(*futures) == [Appended(0)] * 8


async def test_a_refused_append_is_caught_up_and_tried_again(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(), partition)
    await produce(other, b"theirs", b"too")
    assert await produce(partition, b"ours") == Appended(2)
    assert values(stored(valkey, partition)) == [b"theirs", b"too", b"ours"]


async def test_a_stream_deleted_behind_our_back_is_rebuilt_from_the_cache(
    valkey: Valkey, partition: LogPartition
) -> None:
    await produce(partition, b"a", b"b")
    await produce(partition, b"c")
    before = stored_entries(valkey, partition)
    valkey.ask("DEL", partition.keys.log)
    assert await produce(partition, b"d") == Appended(3)
    assert stored_entries(valkey, partition)[:2] == before
    assert values(stored(valkey, partition)) == [b"a", b"b", b"c", b"d"]
    assert partition.leader_epoch == 0


async def test_what_the_cache_no_longer_has_of_a_deleted_stream_is_a_gap(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(tail_cache_bytes=3 * (ENTRY_BYTES + 170))
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
    for n in range(10):
        await produce(partition, b"%d" % n * 100)
    kept = partition.tail.first
    assert kept is not None
    assert kept.base > 0
    valkey.ask("DEL", partition.keys.log)
    assert await produce(partition, b"next") == Appended(10)
    assert [record.offset for record in stored(valkey, partition)] == list(range(kept.base, 11))
    assert partition.log_start == kept.base
    assert partition.leader_epoch == 1
    assert store.events == {"gaps": 1, "restored_entries": 10 - kept.base}
    again = await same_partition(await open_store(), partition)
    assert (again.log_start, again.end, again.leader_epoch) == (kept.base, 11, 1)
    assert stored(valkey, partition)[-1].leader_epoch == 1


async def test_a_deleted_topic_answers_that_it_is_not_there_and_no_key_comes_back(
    valkey: Valkey, store: Store, partition: LogPartition, open_store: OpenStore
) -> None:
    await produce(partition, b"a", producer=7, sequence=0)
    other = await open_store()
    topic = await other.default.catalogue.find("orders")
    assert topic is not None
    await other.default.catalogue.delete(topic)
    for _ in range(2):
        with pytest.raises(PartitionGone) as raised:
            await produce(partition, b"b", producer=7, sequence=1)
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await asyncio.gather(partition.save_start(1), partition.save_producers(), return_exceptions=True)
    assert not valkey.keys_with("orders")


async def test_a_stream_lost_before_the_first_look_goes_on_far_behind_its_old_end(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await asyncio.gather(*(produce(partition, b"%d" % n) for n in range(50)))
    await store_of(partition).close()
    valkey.ask("DEL", partition.keys.log)
    again = await same_partition(await open_store(), partition)
    appended = await produce(again, b"next")
    assert appended.base_offset >= 50
    assert again.leader_epoch == 1
    assert again.log_start == appended.base_offset


async def test_a_partition_of_which_every_key_was_evicted_gives_no_offset_out_again(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await asyncio.gather(*(produce(partition, b"%d" % n) for n in range(50)))
    await store_of(partition).close()
    valkey.ask("DEL", *partition.keys.all())
    again = await same_partition(await open_store(), partition)
    assert (await produce(again, b"next")).base_offset >= 50


async def test_an_evicted_index_is_made_again(valkey: Valkey, partition: LogPartition, open_store: OpenStore) -> None:
    for n in range(10):
        await produce(partition, b"x", timestamps=[n * 100_000])
    points = valkey.ask("XLEN", partition.keys.index)
    assert points > 1
    valkey.ask("DEL", partition.keys.index)
    again = await same_partition(await open_store(), partition)
    await produce(again, b"one more", timestamps=[1_100_000])
    assert again.index.offsets[:-1] == partition.index.offsets
    await until(lambda: valkey.ask("XLEN", partition.keys.index) == points + 1)


async def test_an_entry_that_no_broker_wrote_is_stepped_over(valkey: Valkey, partition: LogPartition) -> None:
    await produce(partition, b"a")
    valkey.ask("XADD", partition.keys.log, "7-3", "something", "else")
    assert await produce(partition, b"b") == Appended(8)
    valkey.ask("XADD", partition.keys.log, "20-1", "b", b"not a batch, though long enough to look like one" * 3)
    assert await produce(partition, b"c") == Appended(21)
    assert partition.end == 22


@pytest.mark.parametrize("reopen", [False, True])
async def test_a_log_whose_last_entries_somebody_removed_goes_on_behind_them(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore, reopen: bool
) -> None:
    """The server refuses ids up to the last one that it knew, and there is nothing to read that says why."""
    for n in range(5):
        await produce(partition, b"%d" % n)
    valkey.ask("XTRIM", partition.keys.log, "MAXLEN", "0")
    one = await same_partition(await open_store(), partition) if reopen else partition
    assert (await produce(one, b"next")).base_offset >= 5
    assert values(stored(valkey, partition)) == [b"next"]


async def test_offsets_stay_dense_over_many_joined_appends(valkey: Valkey, partition: LogPartition) -> None:
    for _ in range(20):
        await asyncio.gather(*(produce(partition, *[b"v"] * (n % 3 + 1)) for n in range(30)))
    assert_dense(stored(valkey, partition))
