"""A report tells ratios of figures that were measured next to each other, and shows what is missed first."""

from __future__ import annotations

from bench.missed import missed_table
from bench.render import aims, markdown, targets_table
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


def test_the_aims_count_rows_that_reach_them_and_rows_below_the_floor() -> None:
    report = Report()
    for number, rate in enumerate([150, 95, 80]):
        report.add(produced([rate], [100], f"row {number}"))
    line = next(line for line in aims(report).splitlines() if "produce 100 B" in line)
    assert "**1 of 3** rows (wanted 28), **1** below 0.9 (wanted none); worst 0.80, row 2" in line


def test_a_row_below_kafka_has_the_cpu_of_each_process_and_what_the_servers_need() -> None:
    report = Report()
    costs = {
        HEADRACE: {"client": 8.0, "broker": 6.0, "store": 3.0},
        KAFKA: {"client": 8.0, "broker": 5.0},
        NULL_BROKER: {"client": 7.0, "broker": 1.0},
    }
    # 10 MB/s is 100 ms for a MB, on one core: to be level it has to be 10 ms less.
    values = {HEADRACE: [100_000], KAFKA: [111_111], NULL_BROKER: [200_000]}
    report.add(Figure("own core", "100 B", "records/s", values, goal="own core", costs=costs))
    report.add(Figure("own core", "fast, 100 B", "records/s", {HEADRACE: [2], KAFKA: [1]}, "own core", costs=costs))
    rows = missed_table(report).splitlines()
    assert "own core: 100 B | 0.90 " in rows[-1]
    assert "| 8 / 6 / 3 " in rows[-1]
    assert "| 8 / 5 " in rows[-1]
    assert "| 7 / 1 " in rows[-1]
    assert rows[-1].endswith("| the client   |")
