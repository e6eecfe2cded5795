"""A report tells ratios of figures that were measured next to each other, and shows what is missed first."""

from __future__ import annotations

from bench.render import markdown, targets_table
from bench.report import HEADRACE, KAFKA, NULL_BROKER, Figure, Report


def produced(headrace: list[float], kafka: list[float], workload: str = "100 B") -> Figure:
    return Figure("produce", workload, "records/s", {HEADRACE: headrace, KAFKA: kafka}, goal="produce")


def test_a_ratio_is_the_median_of_neighbours_and_its_spread_their_least_and_greatest() -> None:
    ratio = produced([100, 400, 900], [100, 200, 300]).ratio(KAFKA)
    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.greatest) == (2, 1, 3)
    assert str(ratio) == "2.00 (1.00 to 3.00)"


def test_missed_targets_come_first_and_a_target_without_figures_last() -> None:
    report = Report()
    report.add(produced([150], [100]))
    report.add(Figure("start", "start to ready", "ms", {HEADRACE: [100], KAFKA: [200]}, goal="start"))
    rows = targets_table(report).splitlines()[2:]
    assert "start to ready" in rows[0]
    assert "| no " in rows[0]
    assert "produce 100 B and 1 KB, batched" in rows[1]
    assert "| yes " in rows[1]
    assert all("not measured" in row for row in rows[2:])


def test_a_target_is_judged_by_its_worst_figure() -> None:
    report = Report()
    report.add(produced([150], [100], "good"))
    report.add(produced([50], [100], "bad"))
    row = targets_table(report).splitlines()[2]
    assert "| bad " in row
    assert "| 0.50 " in row
    assert "| 1 of 2 " in row


def test_a_system_that_could_not_run_is_named_with_the_reason_and_its_column_says_so() -> None:
    report = Report()
    report.leave_out(KAFKA, "missing: mvn")
    report.add(Figure("produce", "100 B", "records/s", {HEADRACE: [1], NULL_BROKER: [2]}, goal="produce"))
    text = markdown(report)
    assert "Apache Kafka: missing: mvn" in text
    assert "not run" in text
    assert "0.50" in text
