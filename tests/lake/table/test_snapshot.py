"""A table at one moment: what its live files cover, and how the next snapshot follows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headrace.lake.table.names import RangeFile
from headrace.lake.table.parquet_file import write_gap
from headrace.lake.table.snapshot import Coverage, Snapshot, StaleArchive
from tests.lake.made_table import FIRST_MS, fill, make_table


def covering(*ranges: tuple[int, int]) -> Coverage:
    return Coverage([RangeFile(0, start, end, end - start, "", f"{start}") for start, end in ranges])


@pytest.mark.parametrize(
    ("ranges", "first", "stop", "missing"),
    [
        (((0, 10), (10, 20)), 0, 20, None),
        (((0, 10), (10, 20)), 5, 15, None),
        (((0, 10), (10, 20)), 7, 7, None),
        (((0, 10), (10, 20)), 5, 21, 20),
        (((5, 10),), 0, 10, 0),
        (((0, 10), (12, 20)), 0, 20, 10),
        (((0, 10), (8, 20)), 0, 20, 10),
        ((), 0, 1, 0),
    ],
)
def test_files_say_the_first_offset_that_they_lack(
    ranges: tuple[tuple[int, int], ...], first: int, stop: int, missing: int | None
) -> None:
    assert covering(*ranges).lacks(first, stop) == missing


def test_the_files_of_a_span_and_of_the_last_stretch() -> None:
    covered = covering((0, 10), (12, 20), (20, 30))
    assert [file.start for file in covered.span(15, 21)] == [12, 20]
    assert [file.start for file in covered.span(15, 20)] == [12]
    assert covered.span(15, 15) == []
    assert [file.start for file in covered.last_stretch()] == [12, 20]
    assert covering().last_stretch() == []


def test_a_snapshot_stays_as_it_was_and_the_next_one_follows(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 2)
    delta = table.place.delta()
    before = Snapshot.take(table.place, delta)
    assert before.update(delta) is before
    fill(table, 1)
    table.commit([write_gap(table.place, 0, 30, 40)])
    after = before.update(delta)
    assert (before.of(0).end, before.position(0)) == (20, 20)
    assert (after.of(0).end, after.of(0).gaps, after.version) == (40, [(30, 40)], table.version)
    assert after.of(7).files == []
    assert after.oldest_ms == FIRST_MS


def test_a_file_that_is_gone_is_found_and_stays_left_out_of_what_is_covered(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    fill(table, 3)
    delta = table.place.delta()
    seen = Snapshot.take(table.place, delta)
    gone = seen.of(0).files[1]
    os.unlink(f"{table.place}/{gone.path}")
    seen = seen.without(file.path for file in seen.find_lost())
    assert seen.lost == {gone.path}
    assert seen.of(0).lacks(0, 30) == 10
    fill(table, 1)
    assert seen.update(delta).of(0).lacks(0, 40) == 10


def test_a_table_that_was_deleted_is_not_opened_again(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    seen = table.snapshot
    shutil.rmtree(table.place.uri)
    with pytest.raises(StaleArchive, match="is gone"):
        seen.reopen()
