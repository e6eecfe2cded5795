"""A task of a typed table: reads a range of the raw table, parses it, writes typed rows and rejects.

Like the archive's own tasks it decides nothing, and a problem with its range is a result, not a failure. If the schema
evolves, a range with new fields returns those fields instead of files: columns are committed before rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from headrace.lake.storage.place import Place, reason
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import RangeFile
from headrace.lake.typed.format import parser_of, table_columns
from headrace.lake.typed.parser import Parsed, Parser
from headrace.lake.typed.table import REJECTS_SCHEMA
from headrace.lake.typed.writer import DerivedWriter
from headrace.schemas.definition import Definition
from headrace.schemas.infer import both

COLUMNS = ["offset", "timestamp", "key", "value"]


class DeriveTask(msgspec.Struct, frozen=True):
    """The offsets [start, end) of a partition, their raw files, and the tables for their rows."""

    topic: str
    partition: int
    start: int
    end: int
    raw: Place
    files: list[RangeFile]
    typed: Place
    rejects: Place
    definition: Definition
    rejected_end: int = 0
    """Rejects are already committed up to here, by a run killed before it committed its typed rows."""
    rejected: list[int] = []
    """Their offsets from `start` on."""
    is_final: bool = False
    """New fields are ignored: the schema cannot grow any more."""


class DeriveOutcome(msgspec.Struct, frozen=True):
    """The result of a range: files, or the schema of records with new fields, or a problem."""

    range: DeriveTask
    typed: Written | None = None
    rejects: Written | None = None
    shown: dict[str, Any] | None = None
    trouble: str | None = None
    passes: bool = False
    """A retry may succeed, as after a full disk."""
    missing: str | None = None
    """A missing raw file: merged and deleted since it was listed, or lost."""


def derive_encoded(content: bytes) -> bytes:
    """A range and its outcome as bytes."""
    return msgspec.msgpack.encode(derive(msgspec.msgpack.decode(content, type=DeriveTask)))


def derive(wanted: DeriveTask) -> DeriveOutcome:
    """Parses a range and writes its files."""
    try:
        return _derive(wanted)
    except _Missing as missing:
        return DeriveOutcome(wanted, missing=str(missing))
    except (OSError, pa.ArrowException, ValueError) as error:
        return DeriveOutcome(wanted, trouble=reason(error))


class _Missing(Exception):
    """The path of a missing raw file."""


def _derive(wanted: DeriveTask) -> DeriveOutcome:
    parser, columns = parser_of(wanted.definition), table_columns(wanted.definition)
    typed = DerivedWriter(wanted.typed, columns, wanted.partition, wanted.start)
    rejects = DerivedWriter(wanted.rejects, REJECTS_SCHEMA, wanted.partition, max(wanted.start, wanted.rejected_end))
    shown: list[dict[str, Any]] = []
    for rows in _raw_rows(wanted):
        parsed = _parse(parser, rows, wanted)
        if parsed.shown and not wanted.is_final:
            shown = [reduce(both, [*shown, *parsed.shown])]
        if not shown:
            typed.add(_typed_rows(rows, parsed, columns, wanted.partition))
            rejects.add(_rejected_rows(rows, parsed, wanted))
    if shown:
        return DeriveOutcome(wanted, shown=shown[0])
    try:
        return DeriveOutcome(wanted, typed.finish(wanted.end), rejects.finish(wanted.end) if rejects.rows else None)
    except (OSError, DeltaError) as error:
        # A full disk, or an unavailable store.
        return DeriveOutcome(wanted, trouble=reason(error), passes=True)


def _parse(parser: Parser, rows: pa.RecordBatch, wanted: DeriveTask) -> Parsed:
    """Rows already in the rejects stay there, whatever the current schema."""
    parsed = parser.parse(rows.column("value").to_pylist())
    if wanted.rejected:
        offsets = rows.column("offset").to_numpy()[parsed.rows]
        keep = ~np.isin(offsets, wanted.rejected)
        parsed.rows = [row for row, kept in zip(parsed.rows, keep, strict=True) if kept]
        parsed.columns = [column.filter(pa.array(keep)) for column in parsed.columns]
    return parsed


def _raw_rows(wanted: DeriveTask) -> Iterator[pa.RecordBatch]:
    last = -1
    for file in wanted.files:
        with _opened(wanted.raw, file.path) as opened, pq.ParquetFile(opened) as parquet:
            for group in range(parquet.num_row_groups):
                for rows in parquet.read_row_group(group, COLUMNS).combine_chunks().to_batches():
                    offsets = rows.column("offset").to_numpy()
                    if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                        raise ValueError(f"the rows of {file.path} are not in offset order")
                    last = int(offsets[-1])
                    begin, end = np.searchsorted(offsets, [wanted.start, wanted.end])
                    if begin < end:
                        yield rows.slice(begin, end - begin)


def _opened(raw: Place, path: str) -> pa.NativeFile:
    try:
        return raw.open(path)
    except FileNotFoundError:
        raise _Missing(path) from None


def _typed_rows(rows: pa.RecordBatch, parsed: Parsed, columns: pa.Schema, partition: int) -> pa.RecordBatch:
    taken = rows if len(parsed.rows) == rows.num_rows else rows.take(pa.array(parsed.rows, pa.int64()))
    numbers = pa.array(np.full(taken.num_rows, partition, dtype=np.int32))
    known = [numbers, *(taken.column(name) for name in ("offset", "timestamp", "key"))]
    made = [column.cast(field.type) for column, field in zip(parsed.columns, [*columns][len(known) :], strict=True)]
    return pa.record_batch([*known, *made], schema=columns)


def _rejected_rows(rows: pa.RecordBatch, parsed: Parsed, wanted: DeriveTask) -> pa.RecordBatch:
    offsets = rows.column("offset").to_numpy()
    new = [(row, why) for row, why in parsed.rejected if offsets[row] >= wanted.rejected_end]
    taken = rows.take(pa.array([row for row, _ in new], pa.int64()))
    numbers = pa.array(np.full(len(new), wanted.partition, dtype=np.int32))
    reasons = pa.array([why for _, why in new], pa.string())
    return pa.record_batch([numbers, *taken.columns, reasons], schema=REJECTS_SCHEMA)
