"""The model of large clusters: its figures come from the report, and the page shows what it prints."""

from __future__ import annotations

from bench.model import REPORT, Cost, Load, Needs, needs, table


def test_the_page_on_scale_shows_what_the_model_prints() -> None:
    page = REPORT.parents[1] / "docs" / "scale.md"
    assert table(REPORT.read_text()) in page.read_text()


def test_a_load_is_divided_by_what_a_core_does_with_room_left() -> None:
    assert needs(Load("x", 600, Cost(1.0, 2.0))) == Needs(1, 2, 41)
