"""Compaction of the format `log`: what stays, where it is read, and what does not change by it."""

from __future__ import annotations

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.store import Store
from headrace.wire.compression import CODECS, Compression
from tests.movable_clock import MovableClock
from tests.store.compacted import compact, compacted_topic, headers_left, left, let_pass, put
from tests.store.compacting import compaction_policy
from tests.store.conftest import OpenStore
from tests.store.produced import same_partition
from tests.store.servers import Valkey


@pytest.fixture
async def orders(store: Store) -> LogPartition:
    return await compacted_topic(store)


async def test_the_last_record_of_each_key_stays_with_its_offset(orders: LogPartition, clock: MovableClock) -> None:
    await put(orders, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    await put(orders, (b"c", b"1"), (b"a", b"3"))
    await put(orders, (b"z", b"last entry"))
    passes = await compact(orders, clock)
    assert [(one.from_offset, one.to_offset, one.keys) for one in passes] == [(0, 5, 3)]
    assert [(r.offset, r.key, r.value) for r in await left(orders)] == [
        (1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"z", b"last entry"),
    ]  # fmt: skip
    assert (orders.log_start, orders.end) == (0, 6)


async def test_the_last_entry_stays_whatever_it_repeats(orders: LogPartition, clock: MovableClock) -> None:
    await put(orders, (b"a", b"1"))
    await put(orders, (b"a", b"2"))
    await put(orders, (b"a", b"3"))
    await compact(orders, clock)
    assert [(r.offset, r.value) for r in await left(orders)] == [(1, b"2"), (2, b"3")]


async def test_a_nodes_own_entries_are_compacted_at_the_first_check(orders: LogPartition) -> None:
    for n in range(4):
        await put(orders, (b"a", b"%d" % n))
    assert len(await orders.cleaner.run_if_due(compaction_policy(dirty_ratio=0.0), 2_000)) == 1
    assert [(r.offset, r.value) for r in await left(orders)] == [(2, b"2"), (3, b"3")]


async def test_another_node_and_a_later_start_read_the_same(
    orders: LogPartition, open_store: OpenStore, clock: MovableClock
) -> None:
    for n in range(40):
        await put(orders, *((b"%d" % (n * i % 7), b"%d-%d" % (n, i)) for i in range(5)))
    await compact(orders, clock)
    expected = await left(orders)
    again = await same_partition(await open_store(), orders)
    assert await left(again) == expected
    assert (again.end, again.log_start, again.clean.end) == (orders.end, 0, orders.clean.end)
    assert again.index.size_bytes == orders.index.size_bytes
    assert again.index.entries == orders.index.entries
    assert again.size_bytes == orders.size_bytes


async def test_readers_may_begin_at_every_offset_and_take_as_little_as_they_like(
    orders: LogPartition, clock: MovableClock
) -> None:
    for n in range(30):
        await put(orders, *((b"%d" % (n * i % 5), b"%d-%d" % (n, i)) for i in range(3)))
    await compact(orders, clock)
    everything = await left(orders)
    assert len(everything) < 20
    for start in range(orders.end):
        assert await left(orders, start, 1) == [record for record in everything if record.offset >= start]


async def test_what_does_not_fit_into_one_read_is_not_passed_over(orders: LogPartition, clock: MovableClock) -> None:
    for n in range(20):
        await put(orders, *((b"%d-%d" % (n, i), b"x" * 300) for i in range(10)))
    await compact(orders, clock)
    for max_bytes in range(3_000, 80_000, 1_700):
        assert [record.offset for record in await left(orders, 0, max_bytes)] == list(range(200))


@pytest.mark.parametrize("codec", CODECS)
async def test_a_batch_keeps_its_place_its_producer_and_its_compression(
    orders: LogPartition, clock: MovableClock, codec: Compression
) -> None:
    await put(orders, (b"k", b"0"))
    pairs = [(b"%d" % (n % 600), b"value %d" % n) for n in range(1000)]
    await put(orders, *pairs, producer=7, sequence=0, compression=codec, timestamps=list(range(1000)))
    await put(orders, (b"1", b"new"), producer=7, sequence=1000)
    await put(orders, (b"z", b""))
    await compact(orders, clock)
    header = (await headers_left(orders))[1]
    assert (header.base_offset, header.last_offset_delta) == (1, 999)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
    assert header.compression == codec
    assert header.count == 599
    assert header.max_timestamp == 999
    times = {record.offset: record.timestamp for record in await left(orders) if 0 < record.offset <= 1000}
    assert times == {offset: offset - 1 for offset in times}


async def test_tombstones_go_when_their_time_is_up(orders: LogPartition, clock: MovableClock) -> None:
    policy = compaction_policy(dirty_ratio=0.0, delete_retention_ms=60_000)
    await put(orders, (b"a", b"1"), (b"b", b"1"), timestamps=[5, 6])
    await put(orders, (b"a", None), (b"c", b"1"), timestamps=[7, 8])
    await put(orders, (b"z", b""))
    await compact(orders, clock, policy)
    expected = [(1, b"b", b"1", 6), (2, b"a", None, 7), (3, b"c", b"1", 8), (4, b"z", b"", 1000)]
    assert [tuple(record) for record in await left(orders)] == expected
    await let_pass(orders, clock, 50_000)
    assert await orders.cleaner.run_if_due(policy, 2_000) == []
    await let_pass(orders, clock, 10_000)
    assert len(await orders.cleaner.run_if_due(policy, 2_000)) == 1
    assert [record.offset for record in await left(orders)] == [1, 3, 4]
    assert await orders.cleaner.run_if_due(policy, 2_000) == []


async def test_tombstones_that_may_go_at_once_go_with_the_second_pass(
    orders: LogPartition, clock: MovableClock
) -> None:
    policy = compaction_policy(dirty_ratio=0.0, delete_retention_ms=0)
    await put(orders, (b"a", None), (b"c", b"1"))
    await put(orders, (b"z", b""))
    assert len(await compact(orders, clock, policy)) == 2
    assert [record.offset for record in await left(orders)] == [1, 2]
    assert await compact(orders, clock, policy) == []


async def test_the_last_batch_of_a_producer_stays_as_a_header(
    orders: LogPartition, open_store: OpenStore, clock: MovableClock
) -> None:
    await put(orders, (b"a", b"1"), producer=9, sequence=0)
    await put(orders, (b"a", b"2"), producer=8, sequence=0)
    await put(orders, (b"a", b"3"))
    await put(orders, (b"z", b""))
    await compact(orders, clock)
    found = [(h.base_offset, h.count, h.producer_id) for h in await headers_left(orders)]
    assert found == [(0, 0, 9), (1, 0, 8), (2, 1, -1), (3, 1, -1)]
    again = await same_partition(await open_store(), orders)
    for partition in (orders, again):
        assert (await put(partition, (b"a", b"1"), producer=9, sequence=0)).duplicate


async def test_the_log_is_trimmed_and_memory_falls(orders: LogPartition, valkey: Valkey, clock: MovableClock) -> None:
    for _ in range(200):
        await put(orders, *((b"%d" % (i % 10), b"x" * 100) for i in range(100)))
    before = await orders.link.call("MEMORY", "USAGE", orders.keys.log, "SAMPLES", 0)
    size = orders.size_bytes
    await compact(orders, clock)
    keys = orders.keys
    after = [await orders.link.call("MEMORY", "USAGE", key, "SAMPLES", 0) for key in (keys.log, keys.clean.log)]
    assert sum(after) < before / 50
    assert orders.size_bytes < size / 50
    assert await orders.link.call("EXISTS", keys.clean.new_log, keys.clean.new_points) == 0


async def test_more_comes_and_is_compacted_with_what_was(orders: LogPartition, clock: MovableClock) -> None:
    for rounds in range(4):
        for n in range(10):
            await put(orders, (b"%d" % (n % 3), b"%d" % rounds), (b"only %d-%d" % (rounds, n), b""))
        await compact(orders, clock)
    found = await left(orders)
    keys = [record.key for record in found if record.offset < orders.clean.end]
    assert len(keys) == len(set(keys))
    assert {record.key for record in found} >= {b"only %d-%d" % (r, n) for r in range(4) for n in range(10)}
