"""Writes a range's typed rows, or its rejects, as one Parquet file with Delta statistics.

The file covers its range even without rows: the table's position is the end of its files.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.records.digest import DIGEST_HEX
from headrace.lake.storage.place import Place
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import RangeFile, name_file

ROW_GROUP_BYTES = 8 * 1024 * 1024
_LAST_BUT_A_MOMENT = datetime(9999, 12, 31, 23, 59, 59, 998_000, UTC)


class DerivedWriter:
    """Writes rows, in offset order, to a file."""

    def __init__(self, table: Place, schema: pa.Schema, partition: int, start: int) -> None:
        self._table, self._schema, self._partition, self._start = table, schema, partition, start
        self._bounds: dict[str, tuple[Any, Any, int]] = {}
        self._buffer = pa.BufferOutputStream()
        self._parquet = pq.ParquetWriter(self._buffer, schema, compression="zstd", compression_level=1)
        self.rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds the next rows."""
        if rows.num_rows == 0:
            return
        self.rows += rows.num_rows
        for field in self._schema:
            if _has_bounds(field.type):
                self._note_bounds(field.name, rows.column(field.name))
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def finish(self, end: int) -> Written:
        """Writes the file; it covers the range up to `end`."""
        self._write_group()
        self._parquet.close()
        content = self._buffer.getvalue()
        digest = hashlib.sha256(content).hexdigest()[:DIGEST_HEX]
        path = name_file(self._partition, self._start, end, self.rows, digest)
        self._table.put(path, content)
        return Written(
            RangeFile(self._partition, self._start, end, self.rows, digest, path, content.size), self._stats()
        )

    def _write_group(self) -> None:
        if self._waiting:
            self._parquet.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=1 << 30)
            self._waiting, self._waiting_bytes = [], 0

    def _note_bounds(self, name: str, column: pa.Array) -> None:
        low, high = (scalar.as_py() for scalar in pc.min_max(column).values())
        if name in self._bounds:
            before = self._bounds[name]
            low = min((at for at in (low, before[0]) if at is not None), default=None)
            high = max((at for at in (high, before[1]) if at is not None), default=None)
            self._bounds[name] = (low, high, before[2] + column.null_count)
        else:
            self._bounds[name] = (low, high, column.null_count)

    def _stats(self) -> str:
        """Statistics in Delta's form."""
        lows = {name: low for name, (low, _, _) in self._bounds.items() if low is not None}
        highs = {name: high for name, (_, high, _) in self._bounds.items() if high is not None}
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _in_json(low) for name, low in lows.items()},
                "maxValues": {name: _in_json(_rounded_up(high)) for name, high in highs.items()},
                "nullCount": {name: nulls for name, (_, _, nulls) in self._bounds.items()},
            }
        )


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _rounded_up(value: Any) -> Any:
    """A timestamp rounded up to milliseconds, as in statistics."""
    if not isinstance(value, datetime) or value > _LAST_BUT_A_MOMENT:
        return value
    return value + timedelta(microseconds=-value.microsecond % 1000)


def _in_json(value: Any) -> int | str:
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return f"{value.year:04}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    return str(value.isoformat())
