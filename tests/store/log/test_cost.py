"""What an operation costs does not grow with the log or the number of topics: commands are counted, not time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from headrace.store.log import trim
from headrace.store.log.entries import xadd
from headrace.store.log.partition import LogPartition
from headrace.store.partition.entries import Entry
from headrace.store.store import Store
from tests.store.conftest import OpenStore, StartValkey
from tests.store.produced import batch, log_partition, produce, same_partition
from tests.store.servers import Valkey

LENGTHS = (1_000, 100_000)
OF_THE_UPKEEP = {"hello", "hget", "hvals"}


async def fill(partition: LogPartition, entries: int) -> None:
    """Appends entries by hand, pipelined: the writer would join them."""
    data, _ = batch([b"x" * 20])
    for first in range(partition.end, entries, 5000):
        futures = []
        for offset in range(first, min(first + 5000, entries)):
            data[:8] = offset.to_bytes(8, "big")
            futures.append(partition.link.send_chunks(xadd(partition.keys.log, Entry(offset, 0, bytes(data), b""))))
        await asyncio.gather(*futures)
    partition.doubt()
    await partition.confirm()
    await partition.link.call("PING")
    assert partition.end == partition.index.entries == entries


async def cost(server: Valkey, operation: Callable[[], Awaitable[object]]) -> dict[str, int]:
    """The commands on logs and their meta that an operation takes; those of the upkeep do not count."""
    server.ask("CONFIG", "RESETSTAT")
    await operation()
    counts = server.command_counts()
    return {name: calls for name, calls in counts.items() if name[0] in "xh" and name not in OF_THE_UPKEEP}


async def test_commands_per_operation_do_not_grow_with_the_log(
    start_valkey: StartValkey, open_store: OpenStore
) -> None:
    server = start_valkey(appendonly=False)
    store = await open_store(url=server.url, tail_cache_bytes=100_000, node_lease_ms=60_000)
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: produce(partition, b"y"),
        "read the start": lambda: partition.read(0, 1000, True),
        "read the middle": lambda: partition.read(partition.end // 2, 1000, True),
        "find a time": lambda: partition.find_time(1000),
        "confirm": lambda: looked(partition),
    }
    costs: dict[str, list[dict[str, int]]] = {name: [] for name in operations}
    for entries in LENGTHS:
        await fill(partition, entries)
        for name, operation in operations.items():
            costs[name].append(await cost(server, operation))
    assert costs == {
        "append": [{"xadd": 1}] * 2,
        "read the start": [{"xrevrange": 1, "xrange": 1}] * 2,
        "read the middle": [{"xrevrange": 1, "xrange": 1}] * 2,
        "find a time": [{"xrange": 1}] * 2,
        "confirm": [{"hmget": 1, "xrange": 1}] * 2,
    }


async def looked(partition: LogPartition) -> None:
    partition.doubt()
    await partition.confirm()


async def test_a_read_from_the_cache_asks_nobody(valkey: Valkey, partition: LogPartition) -> None:
    for n in range(100):
        await produce(partition, b"%d" % n)
    assert await cost(valkey, read_cached(partition)) == {}


def read_cached(partition: LogPartition) -> Callable[[], Awaitable[object]]:
    async def read() -> None:
        assert partition.read_cached(0, 1 << 20, True) is not None

    return read


async def test_a_time_within_a_stretch_of_small_entries_is_found_by_one_command(
    valkey: Valkey, partition: LogPartition
) -> None:
    for at in range(200):
        await produce(partition, b"x", timestamps=[1000 + at])
    assert len(partition.index) == 1
    for at in (0, 55, 199):
        assert await partition.find_time(1000 + at) == (at, 1000 + at)
        assert await cost(valkey, partial(partition.find_time, 1000 + at)) == {"xrange": 1}


async def test_many_small_batches_cost_few_appends(valkey: Valkey, partition: LogPartition) -> None:
    async def burst() -> None:
        await asyncio.gather(*(produce(partition, b"x") for _ in range(1000)))

    assert (await cost(valkey, burst))["xadd"] <= 3


async def test_opening_reads_only_what_lies_behind_the_last_index_point_and_snapshot(
    valkey: Valkey, partition: LogPartition, open_store: OpenStore
) -> None:
    await fill(partition, 5000)
    await partition.save_producers()
    other = await open_store()
    valkey.ask("CONFIG", "RESETSTAT")
    again = await same_partition(other, partition)
    assert again.end == 5000
    assert valkey.command_counts()["xrange"] <= 12


async def test_retention_costs_the_same_for_a_long_log(valkey: Valkey, store: Store, partition: LogPartition) -> None:
    await fill(partition, 5000)
    counts = await cost(valkey, lambda: trim.delete_before(partition, 4000))
    assert counts == {"xrevrange": 1, "xtrim": 2, "hset": 2}


@pytest.mark.parametrize("topics", [1, 300])
async def test_an_append_costs_the_same_with_many_topics(valkey: Valkey, store: Store, topics: int) -> None:
    for n in range(topics):
        last = await store.default.catalogue.create(f"topic{n}", 1, {})
    partition = await log_partition(store, last, 0)
    await produce(partition, b"first")
    assert await cost(valkey, lambda: produce(partition, b"x")) == {"xadd": 1}


async def test_creating_a_topic_does_not_read_the_others(valkey: Valkey, store: Store) -> None:
    await store.default.catalogue.create("first", 1, {})
    valkey.ask("CONFIG", "RESETSTAT")
    made = [await store.default.catalogue.create(f"topic{n}", 1, {}) for n in range(10)]
    assert valkey.command_counts().get("hgetall", 0) == 0
    assert [store.default.catalogue.by_name[topic.name] for topic in made] == made
    assert [store.default.catalogue.by_uuid[topic.uuid] for topic in made] == made
