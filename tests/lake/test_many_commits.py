"""Ten thousand commits: the last ones cost what the first ones did, and the table stays small."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace.lake.compaction import FAN_IN, merge, plan_merges
from headrace.lake.log_upkeep import ENTRIES_KEPT, SHORTEN_EVERY
from headrace.lake.place import place_of
from headrace.lake.verify import verify_lake
from tests.lake.made_table import fill, make_table

COMMITS = 10_000
COMPARED = 1_000


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_the_last_of_ten_thousand_commits_cost_what_the_first_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make_table(tmp_path)
    costs: list[float] = []
    most = 0
    for _ in range(COMMITS // COMPARED):
        began = time.process_time()
        for _ in range(COMPARED):
            fill(table, 1, rows_each=2)
            for plan in plan_merges(table):
                table.replace(plan.files, [merge(plan)], same_rows=True)
            most = max(most, len(table.coverage[0].files))
        costs.append((time.process_time() - began) / COMPARED)
        with capsys.disabled():
            print(f"\n{len(costs) * COMPARED:,} commits: {costs[-1] * 1000:.1f} ms of CPU each", end="", flush=True)
    with capsys.disabled():
        print(f"\nlast thousand / first thousand: {costs[-1] / costs[0]:.2f}")
    assert most <= 3 * FAN_IN
    entries = [entry for entry in (tmp_path / "orders" / "_delta_log").iterdir() if entry.suffix == ".json"]
    assert len(entries) <= ENTRIES_KEPT + 2 * SHORTEN_EVERY
    assert table.coverage[0].rows == 2 * COMMITS
    assert verify_lake(place_of(tmp_path), None).findings == []
