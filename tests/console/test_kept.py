"""Answers are kept for as long as they cost."""

from __future__ import annotations

from headrace.console.kept import KeptAnswers


class Making:
    """An answer that takes a while by a clock that stands still otherwise."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s
        self.now_s = 100.0
        self.made = 0

    def clock(self) -> float:
        return self.now_s

    def make(self) -> int:
        self.now_s += self.takes_s
        self.made += 1
        return self.made


def test_an_answer_is_kept_for_twenty_times_as_long_as_it_took() -> None:
    making = Making(0.5)
    kept = KeptAnswers(making.clock)
    assert [kept.get("ann", "topics", making.make) for _ in range(3)] == [1, 1, 1]
    making.now_s += 9.9
    assert kept.get("ann", "topics", making.make) == 1
    making.now_s += 0.2
    assert kept.get("ann", "topics", making.make) == 2


def test_no_visitor_sees_what_another_was_shown() -> None:
    making = Making(0.5)
    kept = KeptAnswers(making.clock)
    assert [kept.get(name, "topics", making.make) for name in ("ann", "bob")] == [1, 2]


def test_who_changes_something_sees_it() -> None:
    making = Making(0.5)
    kept = KeptAnswers(making.clock)
    kept.get("ann", "topics", making.make)
    kept.forget("ann")
    assert kept.get("ann", "topics", making.make) == 2
