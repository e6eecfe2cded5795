"""The result of a check of `headrace doctor`: its severity, a description, and what to do."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class CheckResult(Struct, frozen=True):
    """One line of the doctor's report. `advice` says what to do, if anything."""

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
