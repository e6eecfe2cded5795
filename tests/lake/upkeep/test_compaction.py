"""Compaction: fewer files, the same rows in the same order, proved as before, beside others that commit."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.parquet_file import write_gap
from headrace.lake.table.snapshot import StaleArchive, TableRefused
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import FAN_IN, Damaged, compact_table, merge, plan_merges
from tests.lake.made_table import fill, make_table, written
from tests.lake.other_reader import rows_of


def test_small_files_become_one_with_the_same_rows_in_order(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 12)
    fill(table, 3, partition=1)
    before, version = rows_of(tmp_path / "orders"), table.version
    assert compact_table(table) == (15, 2)
    assert {number: len(covered.files) for number, covered in table.coverage.items()} == {0: 1, 1: 1}
    (file,) = table.coverage[0].files
    with table.place.open(file.path) as opened:
        assert pq.read_table(opened)["offset"].to_pylist() == list(range(120))
    assert rows_of(tmp_path / "orders") == before
    assert verify_lake(place_of(tmp_path), None).findings == []
    # Who reads an older version, or follows the table, finds all files and sees no new rows.
    assert DeltaTable(table.place.uri, version=version).to_pyarrow_table().num_rows == 150
    changes = [json.loads(line) for line in _entry(table).splitlines()]
    assert not any(change[kind]["dataChange"] for change in changes for kind in ("add", "remove") if kind in change)


def test_the_archive_merges_ten_of_a_size_and_leaves_few_files(tmp_path: Path) -> None:
    table, most = make_table(tmp_path), 0
    for _ in range(150):
        fill(table, 1)
        for plan in plan_merges(table):
            table.replace(plan.files, [merge(plan)], same_rows=True)
        most = max(most, len(table.coverage[0].files))
    assert most < 2 * FAN_IN
    assert table.coverage[0].rows == 1500
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_a_gap_stays_a_gap(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 3)
    table.commit([write_gap(table.place, 0, 30, 50)])
    fill(table, 3)
    compact_table(table)
    assert [(file.start, file.end, file.is_gap) for file in table.coverage[0].files] == [
        (0, 30, False), (30, 50, True), (50, 80, False),
    ]  # fmt: skip
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_files_reach_a_size_and_are_left_alone_then(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 6, rows_each=100, value_bytes=1000)
    size = min(file.size_bytes for file in table.coverage[0].files)
    assert compact_table(table, target_bytes=2 * size) == (0, 0)
    compact_table(table, target_bytes=2 * size + 1000)
    assert [file.rows for file in table.coverage[0].files] == [200, 200, 200]


def test_commits_of_an_archive_and_of_a_compaction_do_not_disturb_each_other(tmp_path: Path) -> None:
    ours = make_table(tmp_path)
    fill(ours, 5)
    other = TopicTable(ours.place)
    (plan,) = plan_merges(other, at_least=2)
    merged = merge(plan)
    fill(ours, 1)
    other.replace(plan.files, [merged], same_rows=True)
    ours.commit([written(ours.place, 0, 60, 70)])
    assert [file.rows for file in ours.coverage[0].files] == [50, 10, 10]
    with pytest.raises(StaleArchive):
        ours.replace(plan.files, [merge(plan)], same_rows=True)
    assert verify_lake(place_of(tmp_path), None).findings == []


def test_what_was_changed_is_not_merged(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 4)
    victim = tmp_path / "orders" / table.coverage[0].files[1].path
    rows = pq.read_table(victim)
    pq.write_table(rows.slice(0, 9), victim)
    with pytest.raises(Damaged, match="does not match what was archived"):
        compact_table(table)
    assert len(table.coverage[0].files) == 4


def test_a_table_that_lacks_files_is_not_blessed_by_a_merge(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 4)
    DeltaTable(table.place.uri).delete('"offset" < 10')
    table.refresh()
    with pytest.raises(TableRefused, match="does not match what was archived of partition 0"):
        compact_table(table)
    assert verify_lake(place_of(tmp_path), None).findings


def _entry(table: TopicTable) -> str:
    """The commit that merged partition 0 or 1, whichever was last."""
    log = Path(table.place.uri, "_delta_log")
    return (log / f"{table.version:020}.json").read_text()
