"""Merges small files of typed tables and rejects, by the same rule as for raw tables.

Rows and their order stay the same; files from before a column was added get nulls in it. Rejects have files only where
records were rejected; the ranges between them have none, so files are merged across those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.records.digest import DIGEST_HEX
from headrace.lake.storage.place import Place
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import Coverage, StaleArchive
from headrace.lake.typed.table import DerivedTable
from headrace.lake.typed.writer import DerivedWriter
from headrace.lake.upkeep.compaction import FAN_IN, TARGET_BYTES, first_merge

OnTasks = Callable[[Sequence[bytes], Callable[[bytes], bytes]], Sequence[bytes]]
"""Runs a function over tasks, which are passed as bytes."""


class DerivedMergePlan(msgspec.Struct, frozen=True):
    """Files of one partition to merge; the schema in Arrow's serialised form."""

    table: Place
    files: list[RangeFile]
    schema: bytes


def here(tasks: Sequence[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
    """Runs them one after another, in this process."""
    return [run(task) for task in tasks]


def compact_derived(table: DerivedTable) -> tuple[int, int]:
    """Merges until nothing is left to merge; returns how many files became how many."""
    before = after = 0
    while merged := merge_small_files(table, here, at_least=2):
        before, after = before + sum(merged), after + len(merged)
    return before, after


def merge_small_files(table: DerivedTable, on_tasks: OnTasks, *, at_least: int = FAN_IN) -> list[int]:
    """Merges once in each partition with enough files of similar size; returns how many files each merge replaced."""
    found = (first_merge(_joined(covered), at_least, TARGET_BYTES) for covered in table.coverage.values())
    chosen = [{file.path for file in files} for files in found if files]
    live = {file.path: file for covered in table.coverage.values() for file in covered.files}
    schema = table.schema.serialize().to_pybytes()
    plans = [DerivedMergePlan(table.place, sorted(live[path] for path in paths), schema) for paths in chosen]
    done: list[int] = []
    if not plans:
        return done
    answers = on_tasks([msgspec.msgpack.encode(plan) for plan in plans], merge_derived_encoded)
    for plan, answer in zip(plans, answers, strict=True):
        try:
            table.replace(plan.files, msgspec.msgpack.decode(answer, type=Written))
        except StaleArchive:
            table.refresh()
            break
        done.append(len(plan.files))
    return done


def merge_derived_encoded(content: bytes) -> bytes:
    """A merge and its file, as bytes."""
    return msgspec.msgpack.encode(merge_derived(msgspec.msgpack.decode(content, type=DerivedMergePlan)))


def merge_derived(plan: DerivedMergePlan) -> Written:
    """Writes the merged file; a part that has changed since it was written is refused."""
    schema = pa.ipc.read_schema(pa.py_buffer(plan.schema))
    writer = DerivedWriter(plan.table, schema, plan.files[0].partition, plan.files[0].start)
    for file in plan.files:
        with plan.table.open(file.path) as opened:
            content = opened.read_buffer()
        if hashlib.sha256(content).hexdigest()[:DIGEST_HEX] != file.digest:
            raise ValueError(f"{file.path} has changed since it was written")
        parquet = pq.ParquetFile(pa.BufferReader(content))
        for group in range(parquet.num_row_groups):
            for rows in parquet.read_row_group(group).combine_chunks().to_batches():
                writer.add(_with_columns(rows, schema))
    return writer.finish(plan.files[-1].end)


def _with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    has = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in has else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _joined(covered: Coverage) -> Coverage:
    """The files, with each extended back to the end of the one before."""
    ends = [covered.start, *(file.end for file in covered.files[:-1])]
    return Coverage([msgspec.structs.replace(file, start=end) for file, end in zip(covered.files, ends, strict=True)])
