"""A condition that lasts is logged when it begins and when it is over."""

from __future__ import annotations

import logging

import pytest

from headrace.store.lasting import Lasting, LastingInRounds

log = logging.getLogger("conditions")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.INFO]


def test_it_is_logged_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    trouble = Lasting(log, "begins", "is over")
    trouble.over()
    for _ in range(3):
        trouble.met(why="it is so")
    assert messages(caplog) == ["begins"]
    trouble.over()
    trouble.over()
    trouble.met()
    assert messages(caplog) == ["begins", "is over", "begins"]


def test_it_is_over_when_the_last_one_is_out_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    trouble = Lasting(log, "begins", "is over")
    for who in ("a", "b", "a"):
        trouble.met(who)
    trouble.over("a")
    assert messages(caplog) == ["begins"]
    trouble.over("b")
    assert messages(caplog) == ["begins", "is over"]


def test_in_rounds_it_is_over_after_one_in_which_work_passed_and_none_met_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    trouble = LastingInRounds(log, "begins", "is over")
    for _ in range(2):  # some work passes
        trouble.met()
        trouble.passed()
        trouble.round_ended()
    trouble.round_ended()  # nobody tries
    assert messages(caplog) == ["begins"]
    trouble.passed()
    trouble.round_ended()
    assert messages(caplog) == ["begins", "is over"]
