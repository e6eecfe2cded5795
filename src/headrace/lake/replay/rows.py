"""The rows of a table for a replay: a range of offsets or times, each partition in order.

Partitions are merged by the timestamp of their next rows, so that the target gets records in about their original
order. A row group whose statistics are outside the range is not read. Order inside a file is checked, never assumed.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.storage.place import Place, reason
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import TableRefused
from headrace.lake.table.table import TopicTable

COLUMNS = ["offset", "timestamp_ms", "key", "value", "headers"]


class Excerpt(msgspec.Struct, frozen=True):
    """Start (inclusive) and end (exclusive), each an offset, a time in ms, or None."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def overlap(self, file: RangeFile) -> bool:
        """Whether a file may have rows in the range."""
        return not (
            (self.from_offset is not None and file.end <= self.from_offset)
            or (self.to_offset is not None and file.start >= self.to_offset)
        )

    def mask(self, offsets: pa.Array, times_ms: pa.Array) -> pa.Array | None:
        """Which rows are in the range; None: all."""
        wanted = [
            (pc.greater_equal, offsets, self.from_offset),
            (pc.less, offsets, self.to_offset),
            (pc.greater_equal, times_ms, self.from_ms),
            (pc.less, times_ms, self.to_ms),
        ]
        masks = [compare(column, bound) for compare, column, bound in wanted if bound is not None]
        found = masks[0] if masks else None
        for mask in masks[1:]:
            found = pc.and_(found, mask)
        return found


class Block(msgspec.Struct, frozen=True):
    """Rows of one source partition, of one row group."""

    partition: int
    rows: pa.RecordBatch


class TableRows:
    """The rows of a table within bounds."""

    def __init__(self, table: TopicTable, bounds: Excerpt, partitions: Sequence[int] = ()) -> None:
        self._table, self._bounds = table, bounds
        self._files = {
            partition: [file for file in _checked(table, partition, bounds) if bounds.overlap(file)]
            for partition in (partitions or sorted(table.coverage))
        }

    @property
    def rows(self) -> int:
        """An upper limit of their number."""
        return sum(file.rows for files in self._files.values() for file in files)

    @property
    def gaps(self) -> int:
        """Gaps: ranges lost before they were archived."""
        return sum(file.is_gap for files in self._files.values() for file in files)

    def blocks(self) -> Iterator[Block]:
        """All rows, from the partition whose next rows are oldest."""
        waiting: list[tuple[int, int, pa.RecordBatch, Iterator[pa.RecordBatch]]] = []

        def wait_for_next(partition: int, more: Iterator[pa.RecordBatch]) -> None:
            rows = next(more, None)
            if rows is not None:
                heapq.heappush(waiting, (rows.column("timestamp_ms")[0].as_py(), partition, rows, more))

        for partition, files in self._files.items():
            wait_for_next(partition, self._read(partition, files))
        while waiting:
            _, partition, rows, more = heapq.heappop(waiting)
            yield Block(partition, rows)
            wait_for_next(partition, more)

    def _read(self, partition: int, files: Sequence[RangeFile]) -> Iterator[pa.RecordBatch]:
        last = -1
        for file in files:
            place = self._table.place
            with _named(place / file.path), place.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
                for group in range(parquet.num_row_groups):
                    if not self._may_hold(parquet.metadata.row_group(group)):
                        continue
                    rows = parquet.read_row_group(group, COLUMNS).combine_chunks().to_batches()[0]
                    offsets = rows.column("offset").to_numpy()
                    if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                        raise TableRefused(f"The rows of {file.path} are not in offset order.")
                    last = int(offsets[-1])
                    mask = self._bounds.mask(rows.column("offset"), rows.column("timestamp_ms"))
                    rows = rows if mask is None else rows.filter(mask)
                    if rows.num_rows:
                        yield rows

    def _may_hold(self, group: pq.RowGroupMetaData) -> bool:
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema not in ("offset", "timestamp_ms") or not column.is_stats_set:
                continue
            name = "offset" if column.path_in_schema == "offset" else "ms"
            low, high = getattr(self._bounds, f"from_{name}"), getattr(self._bounds, f"to_{name}")
            if (low is not None and column.statistics.max < low) or (
                high is not None and column.statistics.min >= high
            ):
                return False
        return int(group.num_rows) > 0


@contextlib.contextmanager
def _named(file: Place) -> Iterator[None]:
    """Names the file in errors. A missing one may have been compacted: the caller retries."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise TableRefused(f"{file} cannot be read: {reason(error)}") from None


def _checked(table: TopicTable, partition: int, bounds: Excerpt) -> Sequence[RangeFile]:
    """A partition's files; a table with missing or duplicate rows in the range is refused."""
    covered = table.of(partition)
    for what, ranges in (("lacks", covered.missing()), ("duplicates", covered.doubled())):
        for start, end in ranges:
            if bounds.overlap(RangeFile(partition, start, end, 0, "", "")):
                raise TableRefused(
                    f"The table {what} offsets {start} to {end - 1} of partition {partition}: "
                    "`headrace lake verify` shows what is wrong."
                )
    return covered.files
