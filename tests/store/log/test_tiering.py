"""A tiered partition is one log: cold below its local start, hot from there on, and nothing is lost between the two."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from headrace.store.log import tiering, trim
from headrace.store.log.partition import LogPartition
from headrace.store.partition.old_records import Limits, TroubleKind
from headrace.store.redis.link import Argument
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.cold_copy import ColdCopy
from tests.store.conftest import StartValkey
from tests.store.produced import (
    assert_dense,
    produce,
    records_in,
    same_partition,
    store_of,
    stored_entries,
    until,
)
from tests.store.servers import Valkey
from tests.store.tiered import LOCAL_NOTHING, OpenTiered, archive, read_all


async def test_records_leave_redis_as_far_as_the_lake_holds_them(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 6)
    trouble = await tiering.enforce(tiered, LOCAL_NOTHING)
    assert trouble is not None
    assert trouble.kind is TroubleKind.BEHIND
    assert (tiered.log_start, tiered.local_start, tiered.end) == (0, 12, 20)
    assert [base for base, _ in stored_entries(valkey, tiered)] == [12, 14, 16, 18]


async def test_a_reader_crosses_the_seam_in_order_without_a_gap_or_a_double(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    before = await read_all(tiered)
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    again = await same_partition(await open_tiered(), tiered)
    for partition in (tiered, again):
        for offset in range(partition.end):
            found = await read_all(partition, offset)
            assert found == before[offset:]
            assert_dense(found, offset)


async def test_the_local_start_is_the_first_offset_of_an_entry(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    data = stored_entries(valkey, tiered)
    joined = data[0][1] + data[1][1]
    cold.archive(tiered.topic.uuid, 0, [joined])
    held_end = 4
    cold.batches[tiered.topic.uuid, 0].pop()
    await produce(tiered, b"x")
    await tiering.enforce(tiered, LOCAL_NOTHING)
    assert tiered.local_start == 2 < held_end


async def test_the_last_entry_stays_whatever_the_lake_holds(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 10)
    assert await tiering.enforce(tiered, LOCAL_NOTHING) is None
    assert tiered.local_start == 18
    assert [base for base, _ in stored_entries(valkey, tiered)] == [18]
    assert_dense(await read_all(tiered))


async def test_nothing_leaves_another_server_before_it_was_looked_at(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it counts of the log, and where it ends, was read on the one before."""
    archive(cold, valkey, tiered, 6)
    call = tiered.reads.call

    async def moves_meanwhile(*words: Argument) -> Any:
        reply = await call(*words)
        if words[0] == "XREVRANGE":
            tiered.slot.move_to(tiered.shard)
        return reply

    with monkeypatch.context() as patched:
        patched.setattr(tiered.reads, "call", moves_meanwhile)
        await tiering.enforce(tiered, LOCAL_NOTHING)
    assert tiered.local_start == 0
    assert valkey.ask("HGET", tiered.keys.meta, "local") is None
    assert len(stored_entries(valkey, tiered)) == 10
    await tiering.enforce(tiered, LOCAL_NOTHING)
    assert tiered.local_start == 12


@pytest.mark.parametrize("change", ["away", "slow", "gone", "rolled back", "cut at the start"])
async def test_nothing_leaves_redis_that_the_lake_does_not_hold_now(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, change: str
) -> None:
    archive(cold, valkey, tiered, 4)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    held = cold.batches[tiered.topic.uuid, 0]
    if change == "away":
        cold.is_away = True
    elif change == "slow":
        cold.may_answer.clear()
    elif change == "gone":
        held.clear()
    elif change == "rolled back":
        del held[2:]
    else:
        del held[:]
        cold.archive(tiered.topic.uuid, 0, [data for _, data in stored_entries(valkey, tiered)[2:5]])
    before = stored_entries(valkey, tiered)
    trouble = await tiering.enforce(tiered, LOCAL_NOTHING)
    assert trouble is not None
    assert trouble.kind is (TroubleKind.AWAY if change in ("away", "slow") else TroubleKind.LESS)
    assert (tiered.log_start, tiered.local_start) == (0, 8)
    assert stored_entries(valkey, tiered) == before
    assert (await read_all(tiered, 8))[0].offset == 8
    cold.may_answer.set()


async def test_an_offset_that_the_lake_lost_is_a_storage_error_and_never_out_of_range(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 5)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    cold.batches.clear()
    tiered.check_offset(3)
    with pytest.raises(KafkaError) as raised:
        await read_all(tiered, 3)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_another_node_learns_that_an_offset_is_cold_before_it_calls_it_a_hole(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    other = await same_partition(await open_tiered(), tiered)
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    assert not other.is_cold(3)
    taken = await other.read(3, 1000, True)
    assert records_in(taken) == []
    assert other.is_cold(3)
    assert_dense(await read_all(other, 3), 3)


async def test_retention_of_the_whole_moves_the_log_start_in_the_cold_part(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 8)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    now_ms = tiered.now_ms()
    await tiering.enforce(tiered, LOCAL_NOTHING._replace(retention_ms=now_ms - 5000))
    assert (tiered.log_start, tiered.local_start) == (8, 16)
    await tiering.enforce(tiered, LOCAL_NOTHING._replace(retention_bytes=0))
    assert tiered.log_start == 16
    with pytest.raises(KafkaError):
        tiered.check_offset(15)


async def test_what_is_too_old_and_not_in_the_lake_stays(valkey: Valkey, cold: ColdCopy, tiered: LogPartition) -> None:
    archive(cold, valkey, tiered, 3)
    await tiering.enforce(tiered, Limits(retention_ms=0, retention_bytes=-1, local_ms=0, local_bytes=-1))
    assert (tiered.log_start, tiered.local_start) == (6, 6)


async def test_records_without_a_time_stay_for_the_retention_times_from_their_append(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    await trim.delete_before(tiered, tiered.end)
    before = tiered.end
    for n in range(5):
        await produce(tiered, b"%d" % n + bytes(60), timestamps=[-1])
    archive(cold, valkey, tiered, 100)
    appended_ms, hour_ms = tiered.now_ms(), 3_600_000
    await tiering.enforce(tiered, Limits(retention_ms=hour_ms, retention_bytes=-1, local_ms=hour_ms, local_bytes=-1))
    assert (tiered.log_start, tiered.local_start) == (before, before)
    await until(lambda: tiered.now_ms() > appended_ms + 1)
    await tiering.enforce(tiered, Limits(retention_ms=hour_ms, retention_bytes=-1, local_ms=0, local_bytes=-1))
    assert (tiered.log_start, tiered.local_start) == (before, tiered.last_base)


async def test_deleting_records_in_the_cold_part_moves_the_log_start_alone(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    before = stored_entries(valkey, tiered)
    await trim.delete_before(tiered, 5)
    assert (tiered.log_start, tiered.local_start) == (5, 12)
    assert stored_entries(valkey, tiered) == before
    await trim.delete_before(tiered, 15)
    again = await same_partition(await open_tiered(), tiered)
    assert (again.log_start, again.local_start) == (15, 15)
    assert_dense(await read_all(again, 15), 15)


async def test_times_are_looked_up_across_the_seam(valkey: Valkey, cold: ColdCopy, tiered: LogPartition) -> None:
    expected = {at: await tiered.find_time(at) for at in range(0, 12_000, 500)}
    newest = await tiered.find_newest()
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    assert {at: await tiered.find_time(at) for at in expected} == expected
    assert await tiered.find_newest() == newest


async def test_a_late_time_is_found_without_the_lake(valkey: Valkey, cold: ColdCopy, tiered: LogPartition) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    cold.is_away = True
    assert await tiered.find_time(9000) == (16, 9000)
    with pytest.raises(KafkaError) as raised:
        await tiered.find_time(2000)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_readers_of_one_table_that_is_slow_get_what_comes_later(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    cold.may_answer.clear()
    reads = store_of(tiered).cold_reads
    reading = reads.open(tiered, 0, 300)
    await until(lambda: cold.reads == 1)
    assert not reading.is_ready
    assert reads.open(tiered, 0, 300) is reading
    cold.may_answer.set()
    await until(lambda: reading.is_ready)
    assert records_in(reads.take(tiered, reading, 300, True))[0].offset == 0
    assert reads.open(tiered, 0, 300) is not reading


async def test_records_that_were_taken_are_not_kept(valkey: Valkey, cold: ColdCopy, tiered: LogPartition) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    reads = store_of(tiered).cold_reads
    reading = reads.open(tiered, 0, 300)
    await until(lambda: reading.is_ready)
    assert reading.entries
    kept = weakref.ref(reading.entries[0])
    assert reads.take(tiered, reading, 300, True).chunks
    assert kept() is None


async def test_a_failure_is_told_once_and_the_next_try_is_not_at_once(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    cold.is_away = True
    reads = store_of(tiered).cold_reads
    reading = reads.open(tiered, 0, 300)
    await until(lambda: reading.is_ready)
    with pytest.raises(KafkaError):
        reads.take(tiered, reading, 300, True)
    assert reads.open(tiered, 0, 300) is reading
    assert not reading.is_ready
    woken = asyncio.Event()
    reading.watch(woken.set)
    cold.is_away = False
    await asyncio.wait_for(woken.wait(), 10)
    assert_dense(await read_all(tiered))


async def test_a_stream_that_vanished_leaves_the_cold_part_readable(
    cold: ColdCopy, start_valkey: StartValkey, valkey: Valkey, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    await store_of(tiered).close()
    valkey.ask("DEL", tiered.keys.log)
    again = await same_partition(await open_tiered(), tiered)
    await produce(again, b"after the loss")
    found = await read_all(again)
    assert_dense(found[:-1])
    assert len(found) == 13
    assert found[-1].value == b"after the loss"


async def test_a_reader_before_an_end_that_has_no_records_gets_those_that_come(
    cold: ColdCopy, valkey: Valkey, tiered: LogPartition, open_tiered: OpenTiered
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    await store_of(tiered).close()
    valkey.ask("DEL", tiered.keys.log)
    again = await same_partition(await open_tiered(), tiered)
    reads = store_of(again).cold_reads
    reading = reads.open(again, 15, 300)
    woken = asyncio.Event()
    reading.watch(woken.set)
    await asyncio.wait_for(woken.wait(), 10)
    assert not reading.is_ready
    await produce(again, b"after the loss")
    found = await read_all(again, 15)
    assert [record.value for record in found] == [b"after the loss"]


async def test_there_is_an_end_to_how_much_is_read_at_once(
    valkey: Valkey, cold: ColdCopy, tiered: LogPartition
) -> None:
    archive(cold, valkey, tiered, 6)
    await tiering.enforce(tiered, LOCAL_NOTHING)
    cold.may_answer.clear()
    reads = store_of(tiered).cold_reads
    opened = [reads.open(tiered, offset, 300) for offset in range(-600, 12)]
    await until(lambda: cold.reads == 8)
    assert sum(reads.find(tiered, reading.offset) is reading for reading in opened) == 512
    cold.may_answer.set()
    await until(lambda: all(reading.is_ready for reading in opened[:512]))
    assert cold.reads == 512
