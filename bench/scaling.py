"""Does an operation cost more when the log is longer or the topics are more?

One store on an embedded Valkey, driven in this process. Each figure is the median over many operations.
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

from bench.report import Figure, Report
from headrace.store.address import parse_address
from headrace.store.embedded import EmbeddedValkey
from headrace.store.nodes import Node
from headrace.store.partitions import AnyPartition
from headrace.store.store import Store, StoreOptions
from headrace.wire.batch import check_produced
from headrace.wire.records import Record, encode_batch

_OPERATIONS = 100
_REPEATS = 5
_FILL_AT_ONCE = 2_000
Operation = Callable[[], Awaitable[object]]


def run(report: Report, *, quick: bool) -> None:
    lengths = [10**2, 10**3, 10**4] if quick else [10**4, 10**5, 10**6]
    uvloop.run(_run(report, lengths, [1, 10, 20] if quick else [10, 100, 1_000]))


async def _run(report: Report, lengths: list[int], topic_counts: list[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        valkey = EmbeddedValkey(Path(folder))
        await valkey.start()
        # An entry per batch: the log is as long as it can get.
        options = StoreOptions(append_entry_bytes=1, tail_cache_bytes=1 << 20)
        store = Store(parse_address(valkey.url), Node(0, "127.0.0.1", 9092), options)
        await store.start()
        try:
            await _by_length(report, store, lengths)
            await _by_topics(report, store, topic_counts)
        finally:
            await store.close()
            await valkey.stop()


async def _by_length(report: Report, store: Store, lengths: list[int]) -> None:
    topic = await store.catalogue.create("long", 1, {})
    partition = await store.partition(topic, 0)
    found: dict[str, dict[str, list[float]]] = {}
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
            found.setdefault(name, {})[f"{length:,} entries"] = await _measure(operation)
    _add(report, found)


async def _by_topics(report: Report, store: Store, counts: list[int]) -> None:
    found: dict[str, dict[str, list[float]]] = {}
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
            found.setdefault(name, {})[f"{count:,} topics"] = await _measure(operation)
    _add(report, found)


def _add(report: Report, found: dict[str, dict[str, list[float]]]) -> None:
    """The largest size is the subject: its ratio to the smaller ones is what should stay near 1."""
    for name, sizes in found.items():
        report.add(Figure("scaling", name, "us", dict(reversed(sizes.items()))))


async def _append(partition: AnyPartition) -> None:
    batch = memoryview(bytearray(encode_batch([Record(0, partition.end, None, b"x" * 100, [])])))
    await partition.writer.submit(batch, check_produced(batch, 1 << 20), 10)


async def _confirm(partition: AnyPartition) -> None:
    partition.doubt()
    await partition.confirm()


async def _measure(operation: Operation) -> list[float]:
    """Microseconds of one operation: medians of some runs."""
    medians = []
    for _ in range(_REPEATS):
        times = []
        for _ in range(_OPERATIONS):
            began = time.perf_counter()
            await operation()
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times) * 1e6)
    return medians
