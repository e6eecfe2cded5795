"""Partitions of format `log` to compact, and what is left of them, read as a consumer reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from headrace.store.cluster.catalogue import Placing
from headrace.store.log.compacting.cleaner import Passed
from headrace.store.log.partition import LogPartition
from headrace.store.partition.appending import Appended
from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.store import Store
from headrace.wire.batch import BatchHeader, check_produced, iter_headers
from headrace.wire.compression import Compression
from headrace.wire.records import Record, decode_batch, encode_batch
from tests.movable_clock import MovableClock
from tests.store.compacting import compaction_policy
from tests.store.produced import MAX_BATCH_BYTES, TIMEOUT_S, log_partition

ALWAYS = compaction_policy(dirty_ratio=0.0)
NEVER = compaction_policy(dirty_ratio=1.0, delete_retention_ms=1 << 60)
UNKNOWN_MS = 2_000
Pair = tuple[bytes | None, bytes | None]


class Left(NamedTuple):
    """A record that is left."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def keyed_batch(
    pairs: Sequence[Pair],
    *,
    producer: int = -1,
    sequence: int = -1,
    compression: Compression = "none",
    timestamps: Sequence[int] | None = None,
) -> tuple[memoryview, BatchHeader]:
    """A batch of keys and values."""
    times = timestamps or [1_000] * len(pairs)
    records = [
        Record(at, time, key, value, [("h", b"1")] if at % 2 else [])
        for at, ((key, value), time) in enumerate(zip(pairs, times, strict=True))
    ]
    data = encode_batch(
        records,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
        compression=compression,
    )
    view = memoryview(bytearray(data))
    return view, check_produced(view, MAX_BATCH_BYTES)


def put(partition: LogPartition, *pairs: Pair, **options: object) -> asyncio.Future[Appended]:
    """Hands one batch to the writer."""
    return partition.writer.submit(*keyed_batch(pairs, **options), TIMEOUT_S)  # type: ignore[arg-type]


async def compacted_topic(store: Store, **configs: str) -> LogPartition:
    """Partition 0 of a compacted topic, which the first node leads whoever joins later."""
    placing = Placing(1, {0: [0]})
    topic = await store.default.catalogue.create("orders", 1, {"cleanup.policy": "compact", **configs}, placing)
    return await log_partition(store, topic)


async def compact(partition: LogPartition, clock: MovableClock, policy: CompactionPolicy = ALWAYS) -> list[Passed]:
    """Compacts all that is in the log now, but for its last entry."""
    await partition.cleaner.run_if_due(NEVER, UNKNOWN_MS)
    await let_pass(partition, clock, UNKNOWN_MS)
    return await partition.cleaner.run_if_due(policy, UNKNOWN_MS)


async def let_pass(partition: LogPartition, clock: MovableClock, ms: int) -> None:
    """Lets time pass for a node that keeps its lease."""
    clock.advance(ms)
    await partition.nodes.renew()
    await partition.confirm()


async def headers_left(partition: LogPartition, start: int = 0, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """The headers of all batches, as a consumer gets them from an offset on."""
    return [header for batch in await _read_all(partition, start, max_bytes) for _, header in iter_headers(batch)]


async def left(partition: LogPartition, start: int = 0, max_bytes: int = 1 << 20) -> list[Left]:
    """All records, as a consumer gets them from an offset on."""
    return [
        Left(record.offset, record.key, record.value, record.timestamp)
        for batch in await _read_all(partition, start, max_bytes)
        for record in decode_batch(batch)
        if record.offset >= max(start, partition.log_start)
    ]


async def _read_all(partition: LogPartition, start: int, max_bytes: int) -> list[bytes]:
    batches: list[bytes] = []
    offset = max(start, partition.log_start)
    while offset < partition.end:
        taken = partition.read_cached(offset, max_bytes, True)
        if taken is None:
            taken = await partition.read(offset, max_bytes, True)
        assert taken.chunks, f"nothing to read at {offset}"
        for chunk in taken.chunks:
            for pos, header in iter_headers(chunk):
                assert header.next_offset > offset or batches == [], "batches go back"
                batches.append(bytes(memoryview(chunk)[pos : pos + header.length]))
                offset = header.next_offset
    return batches


def last_of_each(written: Sequence[tuple[int, Pair]], border: int) -> list[tuple[int, Pair]]:
    """What a naive compactor leaves: below the border the last record of each key there, from it on everything."""
    last = {pair[0]: offset for offset, pair in written if offset < border}
    return [(offset, pair) for offset, pair in written if offset >= border or last[pair[0]] == offset]
