"""The log start is a value of its own: inside an entry, at the end, durable; the last entry is never removed."""

from __future__ import annotations

import pytest

from headrace.store.log import trim
from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.redis.errors import StoreError
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.conftest import OpenStore
from tests.store.produced import (
    log_partition,
    produce,
    records_in,
    same_partition,
    stored,
    stored_entries,
    until,
    values,
)
from tests.store.servers import Valkey

HOUR_MS = 3_600_000


async def fill(partition: LogPartition, entries: int, *, size: int = 1, start_ms: int = 0, step_ms: int = 1000) -> None:
    """Entries of two records each."""
    for n in range(entries):
        at = start_ms + n * step_ms
        await produce(partition, b"x" * size, b"y" * size, timestamps=[at, at])


async def test_the_start_may_lie_inside_an_entry(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await fill(partition, 5)
    await trim.delete_before(partition, 5)
    assert [base for base, _ in stored_entries(valkey, partition)] == [4, 6, 8]
    assert (partition.log_start, partition.end) == (5, 10)
    for offset in (4, 11):
        with pytest.raises(KafkaError) as raised:
            partition.check_offset(offset)
        assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await same_partition(await open_store(), partition)).log_start == 5


async def test_deleting_everything_leaves_the_last_entry_and_appends_go_on(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await fill(partition, 5)
    await trim.delete_before(partition, 10)
    assert (partition.log_start, partition.end) == (10, 10)
    assert [base for base, _ in stored_entries(valkey, partition)] == [8]
    assert records_in(await partition.read(10, 1000, True)) == []
    again = await same_partition(await open_store(), partition)
    assert (again.log_start, again.end) == (10, 10)
    assert await produce(again, b"next") == Appended(10)
    assert values(records_in(await again.read(10, 1000, True))) == [b"next"]


async def test_an_offset_past_the_end_is_out_of_range(partition: LogPartition) -> None:
    await fill(partition, 2)
    with pytest.raises(KafkaError) as raised:
        await trim.delete_before(partition, 5)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log_start == 0


async def test_the_start_never_goes_back(valkey: Valkey, partition: LogPartition, open_store: OpenStore) -> None:
    await fill(partition, 5)
    other = await same_partition(await open_store(), partition)
    await trim.delete_before(partition, 7)
    await other.save_start(3)
    await partition.save_start(3)
    await trim.delete_before(partition, 2)
    assert int(valkey.ask("HGET", partition.keys.meta, "start")) == 7
    assert partition.log_start == 7


async def test_a_start_that_could_not_be_stored_does_not_count(valkey: Valkey, partition: LogPartition) -> None:
    await fill(partition, 5)
    valkey.kill()
    with pytest.raises(StoreError):
        await partition.save_start(7)
    assert partition.log_start == 0
    valkey.start()
    await until(lambda: partition.link.timeline == partition.reads.timeline == 1)
    await trim.delete_before(partition, 7)
    assert int(valkey.ask("HGET", partition.keys.meta, "start")) == 7


async def test_a_start_between_entries_of_a_rebuilt_log_stays_readable(valkey: Valkey, partition: LogPartition) -> None:
    await fill(partition, 5)
    await trim.delete_before(partition, 6)
    assert [record.offset for record in records_in(await partition.read(6, 1000, True))] == [6, 7, 8, 9]


async def test_the_producers_are_stored_before_their_batches_are_removed(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    await produce(partition, b"1", producer=7, sequence=1)
    await fill(partition, 5)
    await trim.delete_before(partition, partition.end)
    again = await same_partition(await open_store(), partition)
    assert await produce(again, b"1", producer=7, sequence=1) == Appended(1, duplicate=True)
    with pytest.raises(KafkaError) as raised:
        await produce(again, b"3", producer=7, sequence=3)
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# Retention.


async def test_records_older_than_the_retention_leave(valkey: Valkey, store: Store, partition: LogPartition) -> None:
    now_ms = store.clock.wall_ms()
    await fill(partition, 20, start_ms=now_ms - 20 * HOUR_MS, step_ms=HOUR_MS)
    await partition.enforce_retention(5 * HOUR_MS + 60_000, -1)
    left = stored(valkey, partition)
    assert now_ms - 6 * HOUR_MS <= left[0].timestamp <= now_ms - 4 * HOUR_MS
    assert partition.log_start == left[0].offset
    assert left[-1].offset == 39


async def test_nothing_younger_than_the_retention_leaves(store: Store, partition: LogPartition) -> None:
    await fill(partition, 20, start_ms=store.clock.wall_ms() - 20_000)
    await partition.enforce_retention(HOUR_MS, -1)
    assert partition.log_start == 0


async def test_a_small_topic_that_is_old_as_a_whole_is_emptied(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await fill(partition, 3, start_ms=store.clock.wall_ms() - 2 * HOUR_MS, step_ms=1)
    await partition.enforce_retention(HOUR_MS, -1)
    assert (partition.log_start, partition.end) == (6, 6)
    assert len(stored_entries(valkey, partition)) == 1
    assert await produce(partition, b"next") == Appended(6)


async def test_a_young_record_before_old_ones_keeps_them(store: Store, partition: LogPartition) -> None:
    await produce(partition, b"young", timestamps=[store.clock.wall_ms()])
    await fill(partition, 5, start_ms=store.clock.wall_ms() - 20 * HOUR_MS, step_ms=HOUR_MS)
    await partition.enforce_retention(HOUR_MS, -1)
    assert partition.log_start == 0


async def test_a_log_over_its_bytes_is_cut_to_not_less_than_them(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(index_interval_bytes=1000)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await fill(partition, 100, size=200, step_ms=0)
    keep_bytes = 10_000
    await partition.enforce_retention(-1, keep_bytes)
    entries = stored_entries(valkey, partition)
    left_bytes = sum(len(data) for _, data in entries)
    assert keep_bytes <= left_bytes < keep_bytes + 2500
    assert partition.log_start == entries[0][0]


async def test_retention_to_nothing_keeps_the_last_entry_and_the_end(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(index_interval_bytes=1)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await fill(partition, 10)
    await partition.enforce_retention(-1, 0)
    assert len(stored_entries(valkey, partition)) == 1
    again = await same_partition(await open_store(), partition)
    assert again.end == 20


async def test_trimming_shortens_the_index_too(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(index_interval_bytes=1)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await fill(partition, 50)
    await trim.delete_before(partition, 90)
    assert len(partition.index) <= 6
    assert valkey.ask("XLEN", partition.keys.index) == len(partition.index)


async def test_retention_reads_no_records(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(index_interval_bytes=1000)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await fill(partition, 300, size=200, step_ms=0)
    valkey.ask("CONFIG", "RESETSTAT")
    await partition.enforce_retention(-1, 10_000)
    counts = valkey.command_counts()
    assert counts.get("xrange", 0) == 0
    assert counts["xrevrange"] == 1
