"""A sample of values to infer a schema from, old and new ones, so that it covers the topic's history.

Each partition is sampled in pieces spread evenly from its start to its end; a small one is read completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pyarrow.parquet as pq

from headrace.client import Admin, Cluster, Reader
from headrace.lake.storage.place import Place
from headrace.lake.table.catalogue import find_table
from headrace.lake.table.snapshot import Coverage, Identity
from headrace.wire.special_times import EARLIEST, LATEST
from headrace.wire.topic_partition import TopicPartition

SAMPLE = 10_000
"""Records per partition."""

PIECES = 10
PIECE_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a piece, so that large records do not make it slow."""


def sample(lake: Place, identity: Identity, cluster: Cluster) -> Iterator[bytes]:
    """Values from the raw table or, before there is one, from the topic; each record at most once."""
    raw = find_table(lake, identity)
    if raw is not None and raw.coverage:
        for covered in raw.coverage.values():
            yield from _pieces(covered.rows, partial(_table_values, raw.place, covered))
        return
    admin, reader = Admin(cluster), Reader(cluster)
    for info in admin.describe_topic(identity.topic).partitions:
        partition = (identity.topic, info.index)
        first, end = (admin.list_offsets({partition: at})[partition].offset for at in (EARLIEST, LATEST))
        yield from _pieces(end - first, partial(_topic_values, reader, partition, first))


def _starts(total: int) -> list[int]:
    """The starts of the pieces; the last one includes the newest records."""
    size = SAMPLE // PIECES
    return sorted({piece * max(0, total - size) // (PIECES - 1) for piece in range(PIECES)})


def _pieces(total: int, values_from: Callable[[int], Iterator[tuple[int, bytes | None]]]) -> Iterator[bytes]:
    """Reads the pieces; where they overlap, in a small or sparse partition, one continues where the last ended."""
    following = 0
    for start in _starts(total):
        taken_bytes = 0
        for position, value in islice(values_from(max(start, following)), SAMPLE // PIECES):
            following = position + 1
            if value is not None:
                yield value
                taken_bytes += len(value)
            if taken_bytes > PIECE_BYTES:
                break


def _topic_values(
    reader: Reader, partition: TopicPartition, first: int, start: int
) -> Iterator[tuple[int, bytes | None]]:
    """Values of a partition's records from this distance to the first offset on, and their distances."""
    for _, _, record in reader.read({partition: first + start}):
        yield record.offset - first, record.value


def _table_values(place: Place, covered: Coverage, start: int) -> Iterator[tuple[int, bytes | None]]:
    """Values of a partition's rows from this row number on, and their row numbers."""
    return enumerate(_rows_from(place, covered, start), start)


def _rows_from(place: Place, covered: Coverage, start: int) -> Iterator[bytes | None]:
    for file in sorted(covered.files):
        if start >= file.rows:
            start -= file.rows
            continue
        with place.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                if start >= rows:
                    start -= rows
                    continue
                yield from parquet.read_row_group(group, ["value"])["value"][start:].to_pylist()
                start = 0
