"""Does an operation cost more when the log is longer or the topics are more? Commands are counted, time is measured.

One store on an embedded Valkey, driven in this process. Each figure is the median over many operations, and the time
also as a ratio to the first row of the same run: that ratio is what should stay near 1.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from bench.table import show
from headrace.store.address import parse_address
from headrace.store.embedded import EmbeddedValkey
from headrace.store.nodes import Node
from headrace.store.partitions import AnyPartition
from headrace.store.redis import parse_info
from headrace.store.store import Store, StoreOptions
from headrace.wire.batch import check_produced
from headrace.wire.records import Record, encode_batch

_OPERATIONS = 200
_FILL_AT_ONCE = 2_000
Operation = Callable[[], Awaitable[object]]


def run(*, quick: bool) -> None:
    uvloop.run(_run([10**3, 10**4] if quick else [10**3, 10**4, 10**5, 10**6], [1, 10] if quick else [1, 100, 1_000]))


async def _run(lengths: list[int], topic_counts: list[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        valkey = EmbeddedValkey(Path(folder))
        await valkey.start()
        # An entry per batch: the log is as long as it can get.
        options = StoreOptions(append_entry_bytes=1, tail_cache_bytes=1 << 20)
        store = Store(parse_address(valkey.url), Node(0, "127.0.0.1", 9092), options)
        await store.start()
        try:
            await _by_length(store, lengths)
            await _by_topics(store, topic_counts)
        finally:
            await store.close()
            await valkey.stop()


async def _by_length(store: Store, lengths: list[int]) -> None:
    topic = await store.catalogue.create("long", 1, {})
    partition = await store.partition(topic, 0)
    rows: list[list[str]] = []
    first: dict[str, float] = {}
    for length in lengths:
        while partition.end < length:
            count = min(_FILL_AT_ONCE, length - partition.end)
            await asyncio.gather(*(_append(partition) for _ in range(count)))
        operations: dict[str, Operation] = {
            "append": lambda: _append(partition),
            "read old": lambda: partition.read(random.randrange(partition.end), 10_000, True),
            "find time": lambda: partition.find_time(random.randrange(partition.end)),
            "confirm": lambda: _confirm(partition),
        }
        for name, operation in operations.items():
            rows.append([f"{length:,}", name, *await _measure(store, name, operation, first)])
    show(["entries", "operation", "commands", "us", "ratio"], rows)


async def _by_topics(store: Store, counts: list[int]) -> None:
    print()
    rows: list[list[str]] = []
    first: dict[str, float] = {}
    made = 0
    for count in counts:
        while made < count:
            await store.catalogue.create(f"topic-{made}", 1, {})
            made += 1
        partition = await store.partition(store.catalogue.by_name["topic-0"], 0)
        operations: dict[str, Operation] = {
            "append": partial(_append, partition),
            "find topic": lambda: store.catalogue.find("topic-0"),
            "unknown topic": lambda: store.catalogue.find("nobody"),
        }
        for name, operation in operations.items():
            rows.append([f"{count:,}", name, *await _measure(store, name, operation, first)])
    show(["topics", "operation", "commands", "us", "ratio"], rows)


async def _append(partition: AnyPartition) -> None:
    batch = memoryview(bytearray(encode_batch([Record(0, partition.end, None, b"x" * 100, [])])))
    await partition.writer.submit(batch, check_produced(batch, 1 << 20), 10)


async def _confirm(partition: AnyPartition) -> None:
    partition.doubt()
    await partition.confirm()


async def _measure(store: Store, name: str, operation: Operation, first: dict[str, float]) -> list[str]:
    """Commands and microseconds of one operation, and the time against the first row of its kind."""
    before = await _commands(store)
    times = []
    for _ in range(_OPERATIONS):
        began = time.perf_counter()
        await operation()
        times.append(time.perf_counter() - began)
    counted = (await _commands(store) - before - 1) / _OPERATIONS
    median_us = statistics.median(times) * 1e6
    ratio = median_us / first.setdefault(name, median_us)
    return [f"{counted:.2f}", f"{median_us:.0f}", f"{ratio:.2f}"]


async def _commands(store: Store) -> int:
    return int(parse_info(await store.link.call("INFO", "stats"))["total_commands_processed"])
