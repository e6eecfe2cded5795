"""Entries that compaction or Redis code removed from a stream: they are not lost, and readers do not get them."""

from __future__ import annotations

import pytest

from headrace.store.store import Store
from headrace.store.stream.compacting.compaction import compact_if_due
from headrace.store.stream.partition import StreamPartition
from headrace.wire.batch import check_produced
from headrace.wire.records import Record, encode_batch
from tests.store.compacting import compaction_policy
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of
from tests.store.produced import MAX_BATCH_BYTES, new_servers, produce, records_in, submit, values
from tests.store.servers import Valkey
from tests.store.stream.test_partition import add, open_stream

ALWAYS_DUE = compaction_policy(dirty_ratio=0.0)


async def produce_keyed(partition: StreamPartition, *pairs: tuple[bytes, bytes]) -> None:
    """One batch of keys with values."""
    records = [Record(at, 1000, key, value, []) for at, (key, value) in enumerate(pairs)]
    batch = memoryview(bytearray(encode_batch(records)))
    await submit(partition, batch, check_produced(batch, MAX_BATCH_BYTES))


async def cached_from_the_start(partition: StreamPartition) -> list[bytes | None] | None:
    """What a consumer that begins at the log start gets without a read of Redis."""
    await partition.confirm()
    taken = partition.read_cached(partition.log_start, 1 << 20, True)
    return None if taken is None else values(records_in(taken))


async def read_from_the_start(partition: StreamPartition) -> list[bytes | None]:
    """What such a consumer gets, from memory or from Redis."""
    cached = await cached_from_the_start(partition)
    return values(await all_of(partition)) if cached is None else cached


async def test_a_compacted_batch_is_not_taken_for_lost_when_the_store_goes_back(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    await produce_keyed(partition, (b"a", b"old"), (b"a", b"new"), (b"b", b"kept"))
    assert await compact_if_due(partition, ALWAYS_DUE)
    checkpoint = valkey.checkpoint()
    await produce_keyed(partition, (b"c", b"lost"))
    async with new_servers(store):
        valkey.go_back_to(checkpoint)
    assert values(await all_of(partition)) == [b"new", b"kept", b"lost"]
    assert partition.gaps == []


async def test_an_entry_that_redis_code_removed_is_no_loss_after_a_restart(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    await produce(partition, b"stays")
    base = (await produce(partition, b"goes")).base_offset
    assert valkey.ask("XDEL", partition.keys.log, str(partition.ids.natural_id(base))) == 1
    async with new_servers(store):
        valkey.restart()
    assert values(await all_of(partition)) == [b"stays"]
    assert partition.gaps == []
    assert partition.leader_epoch == 0


async def test_what_redis_code_removes_is_not_served_from_memory(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    partition = await open_stream(store)
    base = (await produce(partition, b"one", b"two", b"three")).base_offset
    middle = add(valkey, partition, "four")
    assert await cached_from_the_start(partition) == [b"one", b"two", b"three", b"four"]
    for identity in (str(partition.ids.natural_id(base + 1)), middle):
        valkey.ask("XDEL", partition.keys.log, identity)
    assert await read_from_the_start(partition) == [b"one", b"three"]
    assert await read_from_the_start(await open_stream(await open_store())) == [b"one", b"three"]


async def test_what_redis_code_trims_while_it_adds_is_not_served_from_memory(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    for number in range(5):
        valkey.ask("XADD", partition.keys.log, "MAXLEN", "=", 2, "*", "value", number)
        await partition.confirm()
    assert await read_from_the_start(partition) == [b"3", b"4"]


async def test_what_compaction_removed_is_not_served_from_memory(store: Store) -> None:
    partition = await open_stream(store)
    await produce_keyed(partition, (b"a", b"old"), (b"a", b"new"), (b"b", b"kept"))
    assert await compact_if_due(partition, ALWAYS_DUE)
    assert await read_from_the_start(partition) == [b"new", b"kept"]


async def test_memory_serves_on_what_comes_after_a_removal(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    base = (await produce(partition, b"one", b"two")).base_offset
    valkey.ask("XDEL", partition.keys.log, str(partition.ids.natural_id(base)))
    await partition.confirm()
    after = partition.end
    await produce(partition, b"three")
    add(valkey, partition, "four")
    await partition.confirm()
    taken = partition.read_cached(after, 1 << 20, True)
    assert taken is not None
    assert values(records_in(taken)) == [b"three", b"four"]
    assert partition.read_cached(base, 1 << 20, True) is None


async def test_what_the_broker_and_redis_code_add_is_no_removal(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    for at in range(0, 300, 3):
        produced = [produce(partition, b"%d" % at), produce(partition, b"%d" % (at + 1))]
        await partition.confirm()
        for one in produced:
            await one
        add(valkey, partition, str(at + 2))
        await partition.confirm()
    assert await cached_from_the_start(partition) == [b"%d" % at for at in range(300)]


async def test_retention_by_size_of_a_compacted_stream_counts_what_is_left(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store, **{"cleanup.policy": "compact,delete"})
    for at in range(200):
        await produce_keyed(partition, (b"%d" % (at // 2), b"x" * 1000))
    await partition.enforce_retention(-1, 150_000)
    assert len(await all_of(partition)) == pytest.approx(150, abs=10)
    assert await compact_if_due(partition, ALWAYS_DUE)
    left = values(await all_of(partition))
    assert len(left) < 80
    await partition.enforce_retention(-1, 150_000)
    assert values(await all_of(partition)) == left
    partition.forget()
    await partition.enforce_retention(-1, 150_000)
    assert values(await all_of(partition)) == left
    await partition.enforce_retention(-1, 50_000)
    assert len(await all_of(partition)) == pytest.approx(50, abs=3)


async def test_the_size_of_a_compacted_stream_is_not_measured_at_every_check(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store, **{"cleanup.policy": "compact,delete"})
    for at in range(60):
        await produce_keyed(partition, (b"%d" % at, b"x" * 1000))
    await partition.enforce_retention(-1, 50_000)
    valkey.ask("CONFIG", "RESETSTAT")
    for at in range(4):
        await produce_keyed(partition, (b"%d" % at, b"x" * 1000))
        await partition.enforce_retention(-1, 50_000)
    assert valkey.command_counts().get("xrevrange", 0) == 0
    for at in range(10):
        await produce_keyed(partition, (b"%d" % at, b"x" * 1000))
    await partition.enforce_retention(-1, 50_000)
    assert len(await all_of(partition)) == pytest.approx(50, abs=3)
