"""Lines about refused logins: each of a few, and a bounded number whatever names and addresses clients make up."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace.broker.logins.audit import LoginAudit

MINUTE_S = 60.0


class Refusals:
    """An audit with a clock of its own, and what it said."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now_s = 0.0
        self._audit = LoginAudit(lambda: self.now_s)
        self._caplog = caplog
        caplog.set_level(logging.INFO, "headrace.audit")

    def refuse(self, claimed: str, host: str = "203.0.113.1") -> None:
        self._audit.refused(claimed, "public", host, "PLAIN", "wrong password")

    def lines(self, what: str = "login refused") -> list[dict[str, Any]]:
        return [record.__dict__ for record in self._caplog.records if record.message == what]


@pytest.fixture
def refusals(caplog: pytest.LogCaptureFixture) -> Refusals:
    return Refusals(caplog)


def test_one_name_has_ten_lines_a_minute_and_one_that_says_how_many_are_missing(refusals: Refusals) -> None:
    for _ in range(25):
        refusals.refuse("eve")
    refusals.refuse("mallory")
    assert [line["claimed"] for line in refusals.lines()] == ["eve"] * 10 + ["mallory"]
    refusals.now_s += MINUTE_S
    refusals.refuse("eve")
    (missing,) = refusals.lines("refused logins were not logged")
    assert (missing["claimed"], missing["number"]) == ("eve", 15)
    assert len(refusals.lines()) == 12


def test_names_that_one_address_makes_up_do_not_fill_the_log(refusals: Refusals) -> None:
    for number in range(5_000):
        refusals.refuse(f"user-{number}")
    refusals.refuse("ann", host="203.0.113.2")
    assert len(refusals.lines()) == 101
    assert refusals.lines()[-1]["claimed"] == "ann", "who comes from elsewhere is not hidden"
    refusals.now_s += MINUTE_S
    refusals.refuse("another")
    (missing,) = refusals.lines("refused logins were not logged")
    assert (missing["host"], missing["number"]) == ("203.0.113.1", 4_900)


def test_a_crowd_of_addresses_does_not_fill_the_log(refusals: Refusals) -> None:
    for minute in range(2):
        for number in range(20_000):
            refusals.refuse(f"user-{number}", host=f"2001:db8::{number % 3_000:x}")
        assert len(refusals.lines()) <= 1_000 * (minute + 1)
        refusals.now_s += MINUTE_S
    assert len(refusals.lines("refused logins were not logged")) <= 1_001
