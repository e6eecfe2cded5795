"""Writes a range of a partition as one Parquet file: ordered rows, row groups of a few megabytes, Delta statistics.

With row groups of 4 to 8 MB a reader that wants one offset, or one hour, skips nearly all of a file. The file is built
in memory and written as a whole, under a name that describes its content (`names`), so a killed task leaves at most a
file that no commit names.

Compression is most of the cost of a 1 KB row. So the archive compresses files quickly (snappy, which every reader
supports), and their values only if that makes them smaller: text without repetitions takes snappy the most time for
the least gain. Merged files, which stay, are compressed well (zstd).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.records.digest import RowDigest
from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.lake.storage.place import Place
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import GAP, RangeFile, name_file

ROW_GROUP_BYTES = 6 * 1024 * 1024
_WITH_BOUNDS = ("partition", "offset", "timestamp", "timestamp_ms", "day")
_REPEATING = ["partition", "timestamp_type", "day"]
_QUICK, _WELL = "snappy", "zstd"
_OTHERS_QUICK = dict.fromkeys(
    [
        *(name for name in TABLE_SCHEMA.names if name not in ("value", "headers")),
        "headers.list.element.key",
        "headers.list.element.value",
    ],
    _QUICK,
)

_SAMPLES, _SAMPLE_BYTES = 4, 32 * 1024
_WORTH = 0.85
"""Values are compressed quickly if samples of them shrink to this part at least."""


class RangeWriter:
    """Writes the rows of a range, in offset order, to a file."""

    def __init__(self, table: Place, partition: int, start: int, *, to_stay: bool = False) -> None:
        self._table, self._partition, self._start = table, partition, start
        self._digest = RowDigest()
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._buffer = pa.BufferOutputStream()
        self._to_stay = to_stay
        self._writer: pq.ParquetWriter | None = None

    @property
    def rows(self) -> int:
        return self._digest.rows

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds the next rows."""
        if rows.num_rows == 0:
            return
        self._digest.add(rows)
        for name in _WITH_BOUNDS:
            low, high = pc.min_max(rows.column(name)).values()
            if name in self._bounds:
                low, high = min(low, self._bounds[name][0], key=_plain), max(high, self._bounds[name][1], key=_plain)
            self._bounds[name] = (low, high)
        for piece in _pieces(rows):
            self._waiting.append(piece)
            self._waiting_bytes += piece.nbytes
            if self._waiting_bytes >= ROW_GROUP_BYTES:
                self._write_group()

    def finish(self, end: int) -> Written:
        """Writes the file; it covers the range up to `end`."""
        digest = self._digest.hex()
        return self._put(end, digest)

    def _put(self, end: int, digest: str) -> Written:
        self._write_group()
        self._parquet(None).close()
        content = self._buffer.getvalue()
        path = name_file(self._partition, self._start, end, self.rows, digest)
        self._table.put(path, content)
        found = RangeFile(self._partition, self._start, end, self.rows, digest, path, content.size)
        return Written(found, self._stats())

    def _write_group(self) -> None:
        if self._waiting:
            self._parquet(self._waiting[0]).write_table(pa.Table.from_batches(self._waiting), row_group_size=1 << 30)
            self._waiting, self._waiting_bytes = [], 0

    def _parquet(self, first: pa.RecordBatch | None) -> pq.ParquetWriter:
        """The file's writer, made for its first rows."""
        if self._writer is None:
            is_quick = not self._to_stay
            only_others = is_quick and first is not None and not _shrinks(first.column("value"))
            self._writer = pq.ParquetWriter(
                self._buffer,
                TABLE_SCHEMA,
                compression=_OTHERS_QUICK if only_others else _QUICK if is_quick else _WELL,
                compression_level=None if is_quick else 1,
                use_dictionary=_REPEATING,
                write_statistics=[*_WITH_BOUNDS],
                write_page_checksum=True,
            )
        return self._writer

    def _stats(self) -> str:
        """Statistics in Delta's form. Our timestamps are whole milliseconds, so its rounding loses nothing."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _in_json(low) for name, (low, _) in self._bounds.items()},
                "maxValues": {name: _in_json(high) for name, (_, high) in self._bounds.items()},
                "nullCount": dict.fromkeys(_WITH_BOUNDS, 0),
            }
        )


def write_gap(table: Place, partition: int, start: int, end: int) -> Written:
    """A file without rows, for records lost before they were archived."""
    return RangeWriter(table, partition, start)._put(end, GAP)


def _shrinks(values: pa.Array) -> bool:
    """Whether samples of the values become smaller by quick compression."""
    _, offsets, data = values.buffers()
    if data is None:
        return True
    ends = memoryview(offsets).cast("i")
    content = data[ends[values.offset] : ends[values.offset + len(values)]]
    step = max(_SAMPLE_BYTES, content.size // _SAMPLES)
    samples = [content[start : start + _SAMPLE_BYTES] for start in range(0, content.size, step)]
    codec = pa.Codec(_QUICK)
    shrunk = sum(codec.compress(sample).size for sample in samples)
    return bool(shrunk <= _WORTH * sum(sample.size for sample in samples))


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(1, int(rows.num_rows * ROW_GROUP_BYTES / max(1, rows.nbytes)))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def _plain(scalar: pa.Scalar) -> Any:
    return scalar.as_py()


def _in_json(scalar: pa.Scalar) -> int | str:
    found = scalar.as_py()
    if isinstance(found, int):
        return found
    if pa.types.is_timestamp(scalar.type):
        return str(found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03}Z")
    return str(found.isoformat())
