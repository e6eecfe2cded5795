"""Results are kept by part: a repeated one replaces its own, a failed one leaves what was there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bench.render import markdown
from bench.report import HEADRACE, KAFKA, Figure
from bench.results import Moment, Result

from bench import results

PARTS = ["throughput", "startup"]


def result(part: str, commit: str, rate: float) -> Result:
    costs = {HEADRACE: {"client": 1.0, "broker": 2.0}}
    figure = Figure("produce", f"{part} 100 B", "records/s", {HEADRACE: [rate], KAFKA: [100.0]}, "produce", costs=costs)
    moment = Moment(commit, f"2026-01-01 00:0{rate % 10:.0f}", 0.5)
    return Result(part, moment, 1.5, False, {"machine": commit}, [figure], {})


def test_a_report_is_composed_of_the_newest_result_of_each_part(tmp_path: Path) -> None:
    results.save(tmp_path, result("throughput", "aaa", 1.0))
    results.save(tmp_path, result("startup", "bbb", 2.0))
    results.save(tmp_path, result("throughput", "ccc", 3.0))
    report = results.compose(tmp_path, PARTS)
    assert [figure.values[HEADRACE] for figure in report.figures] == [[3.0], [2.0]]
    assert report.figures[0].costs == {HEADRACE: {"client": 1.0, "broker": 2.0}}
    assert report.facts == {"machine": "ccc"}
    text = markdown(report)
    assert "| throughput | ccc " in text
    assert "| startup    | bbb " in text


def test_a_part_that_fails_leaves_its_last_figures_and_the_report_says_so(tmp_path: Path) -> None:
    results.save(tmp_path, result("throughput", "aaa", 1.0))
    results.save_failure(tmp_path, "throughput", "no space left")
    results.save_failure(tmp_path, "startup", "no port left")
    report = results.compose(tmp_path, PARTS)
    assert len(report.figures) == 1
    assert report.left_out["throughput"] == "it failed (its figures are from an earlier run): no space left"
    assert report.left_out["startup"] == "it failed (there are no figures): no port left"
    results.save(tmp_path, result("throughput", "bbb", 1.0))
    assert "throughput" not in results.compose(tmp_path, PARTS).left_out


def test_a_file_has_a_line_for_each_figure_and_the_subject_stays_first(tmp_path: Path) -> None:
    kept = result("throughput", "aaa", 1234567.89)
    results.save(tmp_path, kept)
    head, figure, end = (tmp_path / "throughput.json").read_text().splitlines()
    assert head.startswith('{"part":"throughput","moment":{"commit":"aaa"')
    assert f'"values":{{"{HEADRACE}":[1234570.0],"{KAFKA}":[100.0]}}' in figure
    assert "note" not in figure
    assert end == "]}"
    (loaded,) = results.load(tmp_path, PARTS)
    assert loaded.figures[0].subject == HEADRACE
    assert loaded.moment.commit == kept.moment.commit


def test_writing_results_down_makes_no_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "src/code.py", "1")
    measured = results.now().commit
    assert measured
    commit(tmp_path, "bench/results/throughput.json", "{}")
    commit(tmp_path, "bench/report.md", "new")
    (tmp_path / "bench/report.md").write_text("newer")
    assert results.now().commit == measured
    (tmp_path / "src/code.py").write_text("2")
    assert results.now().commit == f"{measured}+"
    commit(tmp_path, "src/code.py", "3")
    assert results.now().commit not in {measured, f"{measured}+"}


def commit(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    git(root, "add", name)
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "a change")


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True)
