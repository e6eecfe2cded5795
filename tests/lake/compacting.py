"""What compaction and vacuum do to a table, in one step: one file a partition instead of many, the old ones gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from headrace.lake.files import RangeFile
from headrace.lake.parquet_file import RangeWriter
from headrace.lake.rows import TABLE_SCHEMA
from headrace.lake.table import TopicTable


def path_of(table: TopicTable, file: RangeFile) -> Path:
    return Path(table.place.uri) / file.path


def compacted(table: TopicTable) -> None:
    actions = []
    for partition, covered in table.coverage.items():
        writer = RangeWriter(table.place, partition, covered.start)
        for file in covered.files:
            for batch in pq.read_table(path_of(table, file), schema=TABLE_SCHEMA).to_batches():
                writer.add(batch)
        written = writer.finish(covered.end)
        actions.append(AddAction(written.file.path, written.file.size_bytes, {}, 0, True, written.stats))
    DeltaTable(table.place.uri).create_write_transaction([*actions], "overwrite", TABLE_SCHEMA)
    for covered in table.coverage.values():
        for file in covered.files:
            path_of(table, file).unlink()
