"""A table of made-up rows, without a topic: for tests of what is done to tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.lake.storage.place import Place, place_of
from headrace.lake.table.catalogue import open_or_create
from headrace.lake.table.delta_log import Written
from headrace.lake.table.parquet_file import RangeWriter
from headrace.lake.table.snapshot import Identity
from headrace.lake.table.table import TopicTable

IDENTITY = Identity("a-cluster", "orders", bytes(range(16)))
FIRST_MS = 1_700_000_000_000


def make_table(lake: Path) -> TopicTable:
    return open_or_create(place_of(lake), IDENTITY, {})


def rows(partition: int, offsets: Sequence[int], value_bytes: int = 10) -> pa.RecordBatch:
    """A row an offset, a second apart."""
    times = [FIRST_MS + 1000 * offset for offset in offsets]
    columns = {
        "partition": [partition] * len(offsets), "offset": [*offsets], "timestamp": [1000 * at for at in times],
        "timestamp_ms": times, "timestamp_type": [0] * len(offsets), "key": [None] * len(offsets),
        "value": [random.Random(offset).randbytes(value_bytes) for offset in offsets], "headers": [None] * len(offsets),
        "day": [at // 86_400_000 for at in times],
    }  # fmt: skip
    arrays = [pa.array(columns[field.name], field.type) for field in TABLE_SCHEMA]
    return pa.record_batch(arrays, schema=TABLE_SCHEMA)


def written(place: Place, partition: int, start: int, end: int, value_bytes: int = 10) -> Written:
    return written_of(place, partition, start, end, range(start, end), value_bytes)


def written_of(
    place: Place, partition: int, start: int, end: int, offsets: Sequence[int], value_bytes: int = 10
) -> Written:
    """A file of [start, end) that has rows at these offsets alone."""
    writer = RangeWriter(place, partition, start)
    if offsets:
        writer.add(rows(partition, offsets, value_bytes))
    return writer.finish(end)


def fill(table: TopicTable, files: int, rows_each: int = 10, partition: int = 0, value_bytes: int = 10) -> None:
    """Adds files, in a commit each."""
    for _ in range(files):
        start = table.position(partition)
        table.commit([written(table.place, partition, start, start + rows_each, value_bytes)])
