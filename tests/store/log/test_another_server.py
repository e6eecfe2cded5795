"""A server that answers in the middle of something, or that others have written to: what was known of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from headrace.store.log import recovery
from headrace.store.log.partition import LogPartition
from headrace.store.partition import losses
from headrace.store.partition.appending import Appended
from headrace.store.partition.losses import Gap
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.store.conftest import OpenStore
from tests.store.log.test_back_in_time import go_back, produce_each
from tests.store.produced import log_partition, produce, same_partition, stored, until, values
from tests.store.servers import Valkey


async def test_entries_are_not_restored_behind_a_hole_of_the_next_server(
    valkey: Valkey, store: Store, partition: LogPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_again = recovery._append_again
    await produce_each(partition, 0, 2)
    older = valkey.checkpoint()
    await produce_each(partition, 2, 5)
    newer = valkey.checkpoint()
    await produce_each(partition, 5, 10)

    async def go_back_further(*arguments: object) -> bool:
        monkeypatch.undo()
        await go_back(valkey, store, older)
        return await append_again(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "_append_again", go_back_further)
    await go_back(valkey, store, newer)
    assert await produce(partition, b"10", producer=7, sequence=10) == Appended(10)
    assert values(stored(valkey, partition)) == [b"%d" % n for n in range(11)]


async def test_a_batch_that_another_node_noted_as_lost_is_no_duplicate(valkey: Valkey, open_store: OpenStore) -> None:
    """The cache has nothing to compare with, and the log goes on behind all that is known."""
    store = await open_store(tail_cache_bytes=0)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    await produce_each(partition, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(partition, 5, 10)
    partition.link.drop("the test keeps it away")
    valkey.go_back_to(checkpoint, start=False)
    partition.shard.link.address = msgspec.structs.replace(partition.link.address, path="/nowhere")
    valkey.start()
    other = await same_partition(await open_store(), partition)
    await losses.record_gap(other, 5, 20)
    other.doubt()
    behind = await produce(other, b"behind")
    assert behind.base_offset >= 20
    partition.shard.link.address = other.link.address
    await until(lambda: partition.link.is_up)
    await partition.confirm()
    assert not (await produce(partition, b"5", producer=7, sequence=5)).duplicate


async def replace(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore, checkpoint: Path, entries: Sequence[Sequence[bytes]]
) -> None:
    """Goes back to a checkpoint while a partition's node is away, and has another node append there."""
    partition.link.drop("the test keeps it away")
    valkey.go_back_to(checkpoint, start=False)
    address = partition.shard.link.address
    partition.shard.link.address = msgspec.structs.replace(address, path="/nowhere")
    valkey.start()
    valkey.ask("HDEL", partition.keys.meta, "server")  # with it the other one would go on behind a margin
    other = await same_partition(await open_store(), partition)
    for entry in entries:
        await produce(other, *entry)
    partition.shard.link.address = address
    await until(lambda: partition.link.is_up)


@pytest.mark.parametrize(
    ("entries", "gaps"),
    [
        ([[b"a"] * 5], []),
        ([[b"a"], [b"b"], [b"c"], [b"d"], [b"e"]], []),
        ([[b"a"] * 3, [b"b"] * 4], []),
        ([[b"a"], [b"b"]], [Gap(7, 10)]),
    ],
    ids=["one entry", "entries of the same places", "more", "less"],
)
async def test_offsets_at_which_another_node_has_records_are_no_gap(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore, entries: list[list[bytes]], gaps: list[Gap]
) -> None:
    await produce_each(partition, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(partition, 5, 10)
    await replace(valkey, partition, open_store, checkpoint, entries)
    await partition.confirm()
    theirs = [value for entry in entries for value in entry]
    end = max(10, 5 + len(theirs))
    assert (partition.gaps, partition.replaced) == (gaps, [Gap(5, 10)])
    reported = losses.parse(valkey.ask("HMGET", partition.keys.meta, *losses.FIELDS))
    assert (reported.gaps, reported.replaced) == (gaps, [Gap(5, 10)])
    assert (partition.leader_epoch, partition.end, partition.epoch_end(0)) == (1, end, (0, end))
    assert await produce(partition, b"5", producer=7, sequence=5) == Appended(end), "it is no duplicate"
    assert values(stored(valkey, partition))[5:] == [*theirs, b"5"]


async def test_a_batch_that_another_nodes_took_the_place_of_is_not_confirmed(
    valkey: Valkey, open_store: OpenStore
) -> None:
    store = await open_store(store_replicas=1, replica_timeout_ms=60_000)
    topic = await store.default.catalogue.create("orders", 1, {"min.insync.replicas": "2"})
    partition = await log_partition(store, topic, 0)
    await produce_each(partition, 0, 5)
    checkpoint = valkey.checkpoint()
    appended = produce(partition, b"5")
    confirmed = asyncio.create_task(partition.copies.confirmed(appended, 1, 60))
    await appended
    await replace(valkey, partition, open_store, checkpoint, [[b"theirs"]])
    await partition.confirm()
    await store.default.catalogue.set_configs(partition.current_topic, {})  # nothing has to be waited for any more
    with pytest.raises(KafkaError, match="lost the batch") as refused:
        await confirmed
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
