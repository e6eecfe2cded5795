"""Tiered partitions over a real Redis and a copy of batches for a lake: what the tests of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.store.cold.reads import Reading
from headrace.store.log.partition import LogPartition
from headrace.store.options import StoreOptions
from headrace.store.partition.old_records import Limits
from headrace.store.store import Store
from tests.store.cold_copy import ColdCopy
from tests.store.produced import Stored, produce, records_in, store_of, stored_entries, until
from tests.store.servers import Valkey

OpenTiered = Callable[..., Awaitable[Store]]
LOCAL_NOTHING = Limits(retention_ms=-1, retention_bytes=-1, local_ms=-1, local_bytes=0)
OPTIONS = StoreOptions(index_interval_bytes=64, tail_cache_bytes=0, cold_timeout_ms=200)


async def fill(partition: LogPartition, entries: int, start_ms: int = 1000) -> None:
    for n in range(entries):
        at = start_ms + n * 1000
        await produce(partition, b"%d" % n + bytes(60), b"second", timestamps=[at, at + 1])


def archive(cold: ColdCopy, valkey: Valkey, partition: LogPartition, entries: int) -> None:
    """Copies the first entries of the stream."""
    found = [data for _, data in stored_entries(valkey, partition)[:entries]]
    cold.archive(partition.topic.uuid, partition.number, found)


async def until_ready(reading: Reading) -> None:
    await until(lambda: reading.is_ready)


async def read_all(partition: LogPartition, offset: int = 0, max_bytes: int = 300) -> list[Stored]:
    """What a consumer gets that fetches again and again."""
    found: list[Stored] = []
    while offset < partition.end:
        if partition.is_cold(offset):
            reading = store_of(partition).cold_reads.open(partition, offset, max_bytes)
            await until_ready(reading)
            taken = store_of(partition).cold_reads.take(partition, reading, max_bytes, True)
        else:
            taken = await partition.read(offset, max_bytes, True)
        records = [record for record in records_in(taken) if record.offset >= offset]
        assert records, f"nothing at {offset}"
        found += records
        offset = records[-1].offset + 1
    return found
