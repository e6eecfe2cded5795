"""What a check of `headrace doctor` found: how bad it is, in words, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckResult(Struct, frozen=True):
    """One line of the doctor's report. `advice` is what to do, where there is something to do."""

    check: str
    level: Severity
    found: str
    advice: str = ""


def ok(check: str, found: str) -> CheckResult:
    return CheckResult(check, Severity.OK, found)


def warn(check: str, found: str, advice: str) -> CheckResult:
    return CheckResult(check, Severity.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> CheckResult:
    return CheckResult(check, Severity.FAIL, found, advice)
