"""Compaction, and a vacuum that does not wait: the files that were replaced are gone at once."""

from __future__ import annotations

from pathlib import Path

from headrace.lake.table.names import RangeFile
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import compact_table


def path_of(table: TopicTable, file: RangeFile) -> Path:
    return Path(table.place.uri) / file.path


def compacted(table: TopicTable) -> None:
    """One file a partition instead of many."""
    before = {path_of(table, file) for covered in table.coverage.values() for file in covered.files}
    compact_table(table)
    table.refresh()
    after = {path_of(table, file) for covered in table.coverage.values() for file in covered.files}
    assert len(after) == len(table.coverage) < len(before)
    for replaced in before - after:
        replaced.unlink()
