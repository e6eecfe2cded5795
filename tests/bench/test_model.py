"""The model of large clusters: its figures come from the report, and the page shows what it prints."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from bench.model import PAGE, REPORT, Cost, Load, Needs, needs, table, with_table
from bench.report import HEADRACE, Figure
from bench.results import Moment, Result

from bench import __main__ as bench
from bench import model, results, simulation


def test_the_page_on_scale_shows_what_the_model_prints() -> None:
    assert table(REPORT.read_text()) in PAGE.read_text()


def costs_of(workload: str, broker_ms: float, with_store_ms: float) -> list[Figure]:
    return [
        Figure("throughput", workload, "ms CPU/MB, broker process", {HEADRACE: [broker_ms]}),
        Figure("throughput", workload, "ms CPU/MB, with the store's", {HEADRACE: [with_store_ms]}),
    ]


def test_writing_a_report_writes_its_table_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "scale.md"
    page.write_text(PAGE.read_text())
    monkeypatch.setattr(bench, "HERE", tmp_path)
    monkeypatch.setattr(model, "PAGE", page)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    figures = [
        *costs_of("librdkafka produces 1 KB, 1 partition, acks all", 3.0, 5.0),
        *costs_of("librdkafka produces 100 B, 1 partition, acks all", 4.0, 7.0),
    ]
    made = Result("throughput", Moment("abc", "2026-01-01 00:00", 0.5), 1.0, False, {}, figures, {})
    results.save(tmp_path / "results", made)
    monkeypatch.setattr(sys, "argv", ["bench", "--render"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest keeps its own
    with pytest.raises(SystemExit):
        bench.main()
    written = page.read_text()
    assert "| 1 GB/s, records of 1 KB, large batches | 3.7 / 2.0 ms | 7 | 4 | 68 |" in written
    assert table((tmp_path / "report.md").read_text()) in written
    report = REPORT.read_text()
    assert simulation.with_table(with_table(written, report), report) == PAGE.read_text()


def test_a_report_without_the_costs_leaves_the_page_as_it_is() -> None:
    with pytest.raises(ValueError, match=r"report\.md has no row"):
        with_table(PAGE.read_text(), "")
    with pytest.raises(ValueError, match="no table"):
        with_table("", REPORT.read_text())


def test_a_load_is_divided_by_what_a_core_does_with_room_left() -> None:
    assert needs(Load("x", 600, Cost(1.0, 2.0))) == Needs(1, 2, 41)
