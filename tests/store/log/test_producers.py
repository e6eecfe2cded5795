"""Idempotent producers by Kafka's rules, across restarts, with and without a snapshot."""

from __future__ import annotations

import asyncio

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.partition.sequences.producers import KEPT_BATCHES, Producers
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import produce, same_partition, stored, until, values, wait_for_a_lease
from tests.store.servers import Valkey

LAST_SEQUENCE = (1 << 31) - 1


async def refused(partition: LogPartition, *batch: bytes, **sequence: int) -> int:
    """The error that a batch is answered with."""
    with pytest.raises(KafkaError) as raised:
        await produce(partition, *batch, **sequence)  # type: ignore[arg-type]
    return raised.value.code


async def test_the_last_five_batches_are_known_and_older_ones_are_out_of_order(partition: LogPartition) -> None:
    for n in range(8):
        await produce(partition, b"%d" % n, b"more", producer=7, sequence=2 * n)
    for n in range(3, 8):
        assert await produce(partition, b"%d" % n, b"more", producer=7, sequence=2 * n) == Appended(2 * n, True)
    assert KEPT_BATCHES == 5
    assert await refused(partition, b"2", b"more", producer=7, sequence=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.end == 16


async def test_a_batch_that_does_not_follow_is_out_of_order(valkey: Valkey, partition: LogPartition) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    assert await refused(partition, b"2", producer=7, sequence=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produce(partition, b"1", producer=7, sequence=1) == Appended(1)
    assert values(stored(valkey, partition)) == [b"0", b"1"]


async def test_a_batch_of_the_same_start_and_another_length_is_no_duplicate(partition: LogPartition) -> None:
    await produce(partition, b"0", b"1", producer=7, sequence=0)
    assert await refused(partition, b"0", producer=7, sequence=0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_an_old_epoch_is_refused_and_a_new_one_starts_at_0(partition: LogPartition) -> None:
    await produce(partition, b"0", producer=7, epoch=3, sequence=0)
    assert await refused(partition, b"1", producer=7, epoch=2, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    code = await refused(partition, b"1", producer=7, epoch=4, sequence=1)
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produce(partition, b"0", producer=7, epoch=4, sequence=0) == Appended(1)
    assert await refused(partition, b"1", producer=7, epoch=3, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_producer_that_is_not_known_starts_anywhere_after_a_lease(partition: LogPartition) -> None:
    await wait_for_a_lease(partition)
    assert await produce(partition, b"x", producer=7, sequence=4711) == Appended(0)
    assert await produce(partition, b"y", producer=7, sequence=4712) == Appended(1)


async def test_after_the_last_sequence_comes_0(partition: LogPartition) -> None:
    for producer in (7, 8):
        await wait_for_a_lease(partition, producer)
    await produce(partition, b"a", producer=7, sequence=LAST_SEQUENCE - 1)
    assert await produce(partition, b"b", b"c", b"d", producer=7, sequence=LAST_SEQUENCE) == Appended(1)
    assert await produce(partition, b"b", b"c", b"d", producer=7, sequence=LAST_SEQUENCE) == Appended(1, True)
    assert await produce(partition, b"e", producer=7, sequence=2) == Appended(4)
    await produce(partition, b"a", producer=8, sequence=LAST_SEQUENCE)
    assert await produce(partition, b"b", producer=8, sequence=0) == Appended(6)


async def test_batches_of_one_entry_are_checked_against_each_other(valkey: Valkey, partition: LogPartition) -> None:
    blocking = produce(partition, b"blocking")
    sequences = [0, 1, 1, 2, 5, 3]
    futures = [produce(partition, b"%d" % n, producer=7, sequence=n) for n in sequences]
    await blocking
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert answers[:4] == [Appended(1), Appended(2), Appended(2, True), Appended(3)]
    assert isinstance(answers[4], KafkaError)
    assert answers[4].code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answers[5] == Appended(4)
    assert values(stored(valkey, partition))[1:] == [b"0", b"1", b"2", b"3"]


async def test_producers_do_not_disturb_one_another(partition: LogPartition) -> None:
    appended = await asyncio.gather(
        *(produce(partition, b"x", producer=producer, sequence=n) for n in range(20) for producer in range(5))
    )
    assert not any(one.duplicate for one in appended)
    assert {known.batches[-1].last for known in partition.producers.by_id.values()} == {19}


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_broker_that_opens_the_log_knows_the_producers(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore, snapshot: bool
) -> None:
    for n in range(4):
        await produce(partition, b"%d" % n, producer=7, sequence=n)
    if snapshot:
        await partition.save_producers()
    for n in range(4, 7):
        await produce(partition, b"%d" % n, producer=7, sequence=n)
    again = await same_partition(await open_store(), partition)
    for n in range(2, 7):
        assert await produce(again, b"%d" % n, producer=7, sequence=n) == Appended(n, duplicate=True)
    assert await refused(again, b"1", producer=7, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produce(again, b"7", producer=7, sequence=7) == Appended(7)


async def test_a_snapshot_saves_reading_what_lies_before_it(
    valkey: Valkey, store: Store, partition: LogPartition, open_store: OpenStore
) -> None:
    """The log before it is not read: here it is no longer there."""
    for n in range(10):
        await produce(partition, b"x", producer=n, sequence=0, timestamps=[n * 100_000])
    await partition.save_producers()
    await store.link.call("XTRIM", partition.keys.log, "MINID", "=", "9-0")
    again = await same_partition(await open_store(), partition)
    assert set(again.producers.by_id) == set(range(10))
    assert again.end == 10


async def test_a_snapshot_is_stored_as_the_log_grows(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(snapshot_interval_bytes=1000)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
    for n in range(20):
        await produce(partition, b"x" * 100, producer=7, sequence=n)
    await until(lambda: int(valkey.ask("HGET", partition.keys.producers, "offset") or 0) >= 14)


async def test_a_snapshot_never_replaces_a_newer_one(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    behind = await same_partition(await open_store(), partition)
    await produce(partition, b"1", producer=7, sequence=1)
    await partition.save_producers()
    newest = valkey.ask("HGET", partition.keys.producers, "state")
    await behind.save_producers()
    assert valkey.ask("HGET", partition.keys.producers, "state") == newest


async def test_closing_stores_a_snapshot(valkey: Valkey, store: Store, partition: LogPartition) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    await store.close()
    assert int(valkey.ask("HGET", partition.keys.producers, "offset")) == 1


async def test_a_producer_that_was_silent_for_long_is_forgotten(
    clock: MovableClock, store: Store, partition: LogPartition
) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    await partition.save_producers()
    assert list(partition.producers.by_id) == [7]
    clock.advance(store.options.producer_expiration_ms + 1)
    await partition.save_producers()
    assert partition.producers.by_id == {}
    await wait_for_a_lease(partition)
    assert await produce(partition, b"x", producer=7, sequence=99) == Appended(1)


async def test_the_state_advances_on_acknowledgement_only(valkey: Valkey, partition: LogPartition) -> None:
    await produce(partition, b"0", producer=7, sequence=0)
    valkey.pause()
    future = produce(partition, b"1", producer=7, sequence=1)
    assert partition.producers.by_id[7].batches[-1].last == 0
    assert partition.end == 1
    valkey.resume()
    await future
    assert partition.producers.by_id[7].batches[-1].last == 1


def test_a_snapshot_reads_back_as_it_was() -> None:
    producers, again = Producers(), Producers()
    assert again.load(producers.snapshot(17)) == 17
    assert again.by_id == {}
    assert Producers().load(None) == 0
