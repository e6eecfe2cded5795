"""What a task does for a typed table: read a range of the raw table, parse it, write its typed rows and its rejects.

Like the archive's own tasks it decides nothing, and what is wrong with one range is its answer, not its failure. Where
a schema evolves, a range with new fields gives these fields instead of files: columns are committed before rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.files import RangeFile
from headrace.lake.place import Place, reason
from headrace.lake.table import Written
from headrace.lake.typed_definition import Definition
from headrace.lake.typed_file import DerivedWriter
from headrace.lake.typed_infer import infer
from headrace.lake.typed_parser import Parsed, Parser
from headrace.lake.typed_table import REJECTS_SCHEMA

COLUMNS = ["offset", "timestamp", "key", "value"]
MOST_EXAMPLES = 10_000


class TypedRange(msgspec.Struct, frozen=True):
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


class TypedOutcome(msgspec.Struct, frozen=True):
    """What became of a range: files; or the schema of records with new fields; or trouble."""

    range: TypedRange
    typed: Written | None = None
    rejects: Written | None = None
    shown: dict[str, Any] | None = None
    trouble: str | None = None
    passes: bool = False
    """Another look at the raw table will help: it was compacted since its files were listed."""


def run_encoded(content: bytes) -> bytes:
    """A range and its outcome as bytes."""
    return msgspec.msgpack.encode(derive(msgspec.msgpack.decode(content, type=TypedRange)))


def derive(wanted: TypedRange) -> TypedOutcome:
    """Parses a range and writes its files."""
    try:
        return _derive(wanted)
    except FileNotFoundError as error:
        return TypedOutcome(wanted, trouble=reason(error), passes=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        return TypedOutcome(wanted, trouble=reason(error))


def _derive(wanted: TypedRange) -> TypedOutcome:
    parser, columns = wanted.definition.parser(), wanted.definition.columns()
    typed = DerivedWriter(wanted.typed, columns, wanted.partition, wanted.start)
    rejects = DerivedWriter(wanted.rejects, REJECTS_SCHEMA, wanted.partition, max(wanted.start, wanted.rejected_end))
    examples: list[bytes] = []
    for rows in _raw_rows(wanted):
        parsed = _parse(parser, rows, wanted)
        examples += parsed.with_new_fields[: MOST_EXAMPLES - len(examples)]
        if not examples:
            typed.add(_typed_rows(rows, parsed, columns, wanted.partition))
            rejects.add(_rejected_rows(rows, parsed, wanted))
    if examples:
        return TypedOutcome(wanted, shown=infer(examples)[0])
    return TypedOutcome(wanted, typed.finish(wanted.end), rejects.finish(wanted.end) if rejects.rows else None)


def _parse(parser: Parser, rows: pa.RecordBatch, wanted: TypedRange) -> Parsed:
    """Rows that are in the rejects already stay there, whatever the schema says by now."""
    parsed = parser.parse(rows.column("value").to_pylist())
    if wanted.rejected:
        offsets = rows.column("offset").to_numpy()[parsed.rows]
        keep = ~np.isin(offsets, wanted.rejected)
        parsed.rows = [row for row, kept in zip(parsed.rows, keep, strict=True) if kept]
        parsed.columns = [column.filter(pa.array(keep)) for column in parsed.columns]
    return parsed


def _raw_rows(wanted: TypedRange) -> Iterator[pa.RecordBatch]:
    last = -1
    for file in wanted.files:
        with wanted.raw.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
            for group in range(parquet.num_row_groups):
                for rows in parquet.read_row_group(group, COLUMNS).combine_chunks().to_batches():
                    offsets = rows.column("offset").to_numpy()
                    if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                        raise ValueError(f"the rows of {file.path} are not in the order of offsets")
                    last = int(offsets[-1])
                    begin, end = np.searchsorted(offsets, [wanted.start, wanted.end])
                    if begin < end:
                        yield rows.slice(begin, end - begin)


def _typed_rows(rows: pa.RecordBatch, parsed: Parsed, columns: pa.Schema, partition: int) -> pa.RecordBatch:
    taken = rows if len(parsed.rows) == rows.num_rows else rows.take(pa.array(parsed.rows, pa.int64()))
    numbers = pa.array(np.full(taken.num_rows, partition, dtype=np.int32))
    known = [numbers, *(taken.column(name) for name in ("offset", "timestamp", "key"))]
    made = [column.cast(field.type) for column, field in zip(parsed.columns, [*columns][len(known) :], strict=True)]
    return pa.record_batch([*known, *made], schema=columns)


def _rejected_rows(rows: pa.RecordBatch, parsed: Parsed, wanted: TypedRange) -> pa.RecordBatch:
    offsets = rows.column("offset").to_numpy()
    new = [(row, why) for row, why in parsed.rejected if offsets[row] >= wanted.rejected_end]
    taken = rows.take(pa.array([row for row, _ in new], pa.int64()))
    numbers = pa.array(np.full(len(new), wanted.partition, dtype=np.int32))
    reasons = pa.array([why for _, why in new], pa.string())
    return pa.record_batch([numbers, *taken.columns, reasons], schema=REJECTS_SCHEMA)
