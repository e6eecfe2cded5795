"""Ten thousand commits: the table stays small, and what the last ones cost is shown beside the first ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace.lake.archive.verify import verify_lake
from headrace.lake.storage.place import place_of
from headrace.lake.table.delta_log import ENTRIES_KEPT, SHORTEN_EVERY
from headrace.lake.table.table import TopicTable
from headrace.lake.upkeep.compaction import FAN_IN, merge, plan_merges
from tests.lake.made_table import fill, make_table

COMMITS = 10_000
TURNS, A_TURN = 10, 100
"""Both tables take turns at the end, so that what else the machine does counts for both alike."""


def commit(table: TopicTable, times: int) -> float:
    """Commits as an archive does; the seconds of CPU that one takes."""
    began = time.process_time()
    for _ in range(times):
        fill(table, 1, rows_each=2)
        for plan in plan_merges(table):
            table.replace(plan.files, [merge(plan)], same_rows=True)
    return (time.process_time() - began) / times


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_a_table_of_ten_thousand_commits_stays_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = make_table(tmp_path / "old"), make_table(tmp_path / "new")
    commit(old, COMMITS - TURNS * A_TURN)
    turns = [(commit(old, A_TURN), commit(new, A_TURN)) for _ in range(TURNS)]
    last, first = sum(turn[0] for turn in turns) / TURNS, sum(turn[1] for turn in turns) / TURNS
    with capsys.disabled():
        print(
            f"\nCPU of a commit: the last thousand of {COMMITS:,} {last * 1000:.1f} ms, the first {first * 1000:.1f} ms"
        )
        print(f"last / first: {last / first:.2f}")
    assert len(old.coverage[0].files) <= 3 * FAN_IN
    entries = [entry for entry in (tmp_path / "old" / "orders" / "_delta_log").iterdir() if entry.suffix == ".json"]
    assert len(entries) <= ENTRIES_KEPT + 2 * SHORTEN_EVERY
    assert old.coverage[0].rows == 2 * COMMITS
    assert verify_lake(place_of(tmp_path / "old"), None).findings == []
