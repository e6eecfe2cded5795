"""What a check of `headrace doctor` found: how bad it is, in words, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """One line of the doctor's report. `advice` is what to do, where there is something to do."""

    check: str
    level: Level
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, found, advice)
