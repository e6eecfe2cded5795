"""A server that answers in the middle of something, or that others have written to: what was known of the last one."""

from __future__ import annotations

import msgspec
import pytest

from headrace.store.log import recovery
from headrace.store.log.partition import LogPartition
from headrace.store.partition import losses
from headrace.store.partition.appending import Appended
from headrace.store.store import Store
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
