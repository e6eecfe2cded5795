"""A part past its budget does fewer rounds of each row; within it, all."""

from __future__ import annotations

from types import SimpleNamespace

from bench.pace import PACE
from bench.systems import take_turns

SYSTEMS = [SimpleNamespace(name="a"), SimpleNamespace(name="b"), SimpleNamespace(name="seldom")]


def rounds() -> dict[str, int]:
    found = take_turns(SYSTEMS, 5, lambda system: system.name, seldom=["seldom"])
    return {name: len(of_one) for name, of_one in found.items()}


def test_a_part_past_its_budget_gets_two_rounds_of_each_row() -> None:
    with PACE.of(minutes=60):
        assert rounds() == {"a": 5, "b": 5, "seldom": 1}
        assert not PACE.was_late
    with PACE.of(minutes=0):
        assert rounds() == {"a": 2, "b": 2, "seldom": 1}
        assert PACE.was_late
    assert rounds()["a"] == 5


def test_a_part_that_shares_its_time_gives_all_its_rows_the_fewer_rounds() -> None:
    with PACE.of(minutes=60):
        PACE.share(2)
        assert [rounds()["a"], rounds()["a"]] == [5, 5]
        assert not PACE.was_late
    with PACE.of(minutes=0):
        PACE.share(2)
        assert [rounds()["a"], rounds()["a"]] == [4, 4]
    assert PACE.was_late
