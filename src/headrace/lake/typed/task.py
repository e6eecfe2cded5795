"""What a task does for a typed table: read a range of the raw table, parse it, write its typed rows and its rejects.

Like the archive's own tasks it decides nothing, and what is wrong with one range is its answer, not its failure. Where
a schema evolves, a range with new fields gives these fields instead of files: columns are committed before rows.
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
from headrace.lake.table.files import RangeFile
from headrace.lake.typed.format import parser_of, table_columns
from headrace.lake.typed.parser import Parsed, Parser
from headrace.lake.typed.table import REJECTS_SCHEMA
from headrace.lake.typed.writer import DerivedWriter
from headrace.schemas.definition import Definition
from headrace.schemas.infer import both

COLUMNS = ["offset", "timestamp", "key", "value"]


class DeriveTask(msgspec.Struct, frozen=True):
    """The offsets [start, end) of a partition, the raw files that hold them, and where their rows go."""

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
    """Up to here the rejects are committed already, by a run that was killed before its typed rows were."""
    rejected: list[int] = []
    """Their offsets from `start` on."""
    is_final: bool = False
    """What new fields it has stays out: the schema has grown by what it can."""


class DeriveOutcome(msgspec.Struct, frozen=True):
    """What became of a range: files; or the schema of records with new fields; or trouble."""

    range: DeriveTask
    typed: Written | None = None
    rejects: Written | None = None
    shown: dict[str, Any] | None = None
    trouble: str | None = None
    passes: bool = False
    """Another try may succeed, such as on a disk that was full."""
    missing: str | None = None
    """A raw file that is not there: merged with others and deleted since it was listed, or lost."""


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
    """The path of a raw file that is not there."""


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
        # A full disk, a store that is away.
        return DeriveOutcome(wanted, trouble=reason(error), passes=True)


def _parse(parser: Parser, rows: pa.RecordBatch, wanted: DeriveTask) -> Parsed:
    """Rows that are in the rejects already stay there, whatever the schema says by now."""
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
