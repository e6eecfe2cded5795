"""Records without a time are as old as their append, which is stored with them; older logs are not trimmed for it."""

from __future__ import annotations

import struct

import pytest

from headrace.store.log import trim
from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.store import Store
from headrace.wire.batch import stamp, stamp_max_timestamp
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.log.test_back_in_time import go_back
from tests.store.produced import batch, log_partition, produce, same_partition, stored, values
from tests.store.servers import Valkey

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
OLD_POINT = struct.Struct(">qqq")


async def fill_untimed(partition: LogPartition, entries: int) -> None:
    for number in range(entries):
        await produce(partition, b"%d" % number, timestamps=[-1])


@pytest.fixture
async def fine(open_store: OpenStore) -> LogPartition:
    """A partition with a point of the index for each entry."""
    store = await open_store(index_interval_bytes=1)
    return await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)


async def test_they_stay_for_the_retention_time_from_their_append(
    clock: MovableClock, fine: LogPartition, open_store: OpenStore
) -> None:
    await fill_untimed(fine, 5)
    again = await same_partition(await open_store(), fine)
    for partition in (fine, again):
        await partition.enforce_retention(HOUR_MS, -1)
        assert partition.log_start == 0
    clock.advance(2 * HOUR_MS)
    later = await same_partition(await open_store(), fine)
    await later.enforce_retention(HOUR_MS, -1)  # their age is that of the append, not of the load
    assert later.log_start == 5


async def test_a_node_that_only_reads_what_another_appends_knows_their_age(
    clock: MovableClock, fine: LogPartition, open_store: OpenStore
) -> None:
    other = await same_partition(await open_store(index_interval_bytes=1), fine)
    await fill_untimed(fine, 5)
    other.doubt()
    await other.confirm()
    assert (other.end, list(other.index.ages)) == (5, list(fine.index.ages))
    await other.enforce_retention(HOUR_MS, -1)
    assert other.log_start == 0
    clock.advance(2 * HOUR_MS)
    await other.enforce_retention(HOUR_MS, -1)
    assert other.log_start == 5


async def test_the_time_of_the_append_is_stored_where_it_is_needed(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    before_ms = store.clock.wall_ms()
    await produce(partition, b"timed", timestamps=[before_ms])
    await produce(partition, b"untimed", timestamps=[-1])
    await produce(partition, b"one is not", b"timed", timestamps=[-1, before_ms])
    noted = [fields.get(b"t") for _, fields in valkey.stream(partition.keys.log)]
    assert [time is not None for time in noted] == [False, True, False]
    assert before_ms <= int(noted[1] or 0) <= store.clock.wall_ms()


async def test_an_entry_joined_of_both_kinds_is_as_old_as_its_youngest(store: Store, partition: LogPartition) -> None:
    waiting = [produce(partition, b"old", timestamps=[1000]), produce(partition, b"untimed", timestamps=[-1])]
    assert [(await one).base_offset for one in waiting] == [0, 1]
    await partition.enforce_retention(HOUR_MS, -1)
    assert partition.log_start == 0
    assert await partition.find_time(0) == (0, 1000)
    assert await partition.find_newest() == (0, 1000)


async def test_what_a_store_lost_comes_back_with_its_time(
    valkey: Valkey, store: Store, partition: LogPartition
) -> None:
    await fill_untimed(partition, 2)
    checkpoint = valkey.checkpoint()
    await fill_untimed(partition, 3)
    before = valkey.stream(partition.keys.log)
    await go_back(valkey, store, checkpoint)
    await partition.confirm()
    assert valkey.stream(partition.keys.log) == before


async def test_a_long_log_without_times_is_not_searched_for_one(valkey: Valkey, fine: LogPartition) -> None:
    await fill_untimed(fine, 50)
    valkey.ask("CONFIG", "RESETSTAT")
    assert await fine.find_time(1) is None
    assert await fine.find_newest() == (0, -1)
    assert valkey.command_counts()["xrange"] == 2


# Logs from before the time of the append was stored.


def write_old(valkey: Valkey, partition: LogPartition, offset: int, timestamp: int, says: int) -> None:
    """An entry as it was written once: whatever the header says."""
    data, _ = batch([b"%d" % offset], timestamps=[timestamp])
    stamp_max_timestamp(data, says)
    stamp(data, 0, offset, 0)
    valkey.ask("XADD", partition.keys.log, f"{offset}-1", "b", bytes(data), "w", "token")


def write_old_point(valkey: Valkey, partition: LogPartition, offset: int, max_timestamp: int) -> None:
    value = OLD_POINT.pack(max_timestamp, offset * 69, offset)
    valkey.ask("XADD", partition.keys.index, f"{offset}-1", "p", value)


@pytest.mark.parametrize("says", [0, -1])
async def test_an_older_log_without_times_is_as_old_as_when_it_was_first_seen(
    valkey: Valkey, clock: MovableClock, partition: LogPartition, open_store: OpenStore, says: int
) -> None:
    for offset in range(10):
        write_old(valkey, partition, offset, -1, says)
        write_old_point(valkey, partition, offset, says if offset else -1)
    again = await same_partition(await open_store(), partition)
    await again.enforce_retention(DAY_MS, -1)
    assert (again.log_start, again.end) == (0, 10)
    clock.advance(2 * DAY_MS)
    await again.enforce_retention(DAY_MS, -1)
    assert again.log_start == 10


async def test_of_an_older_log_only_what_has_a_time_is_known_to_be_old(
    valkey: Valkey, store: Store, partition: LogPartition, open_store: OpenStore
) -> None:
    old_ms = store.clock.wall_ms() - 9 * DAY_MS
    largest = -1
    for offset in range(10):
        write_old_point(valkey, partition, offset, largest)
        is_timed = offset < 4
        write_old(valkey, partition, offset, old_ms + offset if is_timed else -1, old_ms + offset if is_timed else 0)
        largest = max(largest, old_ms + offset) if is_timed else largest
    again = await same_partition(await open_store(), partition)
    await again.enforce_retention(7 * DAY_MS, -1)
    assert (again.log_start, again.end) == (4, 10)
    # What comes now tells that all before it is older.
    assert await produce(again, b"new", timestamps=[store.clock.wall_ms()]) == Appended(10)
    await again.enforce_retention(7 * DAY_MS, -1)
    assert again.log_start == 4


async def test_times_that_an_older_header_left_out_are_found(
    valkey: Valkey, store: Store, partition: LogPartition, open_store: OpenStore
) -> None:
    now_ms = store.clock.wall_ms()
    for offset in range(5):
        write_old(valkey, partition, offset, now_ms + offset, 0)
    again = await same_partition(await open_store(), partition)
    assert await again.find_time(now_ms + 3) == (3, now_ms + 3)
    assert await again.find_newest() == (4, now_ms + 4)
    await again.enforce_retention(HOUR_MS, -1)
    assert again.log_start == 0


# Times of what was deleted.


async def test_a_deleted_record_of_the_future_keeps_nothing(valkey: Valkey, store: Store, fine: LogPartition) -> None:
    now_ms = store.clock.wall_ms()
    await produce(fine, b"future", timestamps=[now_ms + 100 * DAY_MS])
    for number in range(5):
        await produce(fine, b"%d" % number, timestamps=[now_ms - 2 * DAY_MS])
    await produce(fine, b"new", timestamps=[now_ms])
    await fine.enforce_retention(DAY_MS, -1)
    assert fine.log_start == 0
    await trim.delete_before(fine, 1)
    assert await fine.find_newest() == (6, now_ms)
    await fine.enforce_retention(DAY_MS, -1)
    assert values(stored(valkey, fine)) == [b"new"]
