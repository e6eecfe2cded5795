"""The output format of a client's program, one line per result, for programs in any language.

    version 4.4.0
    ok create topics
    FAILED seek by time: expected offset 3, got 0

Other lines on stdout are ignored. Programs in Python use `Checks`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass
class Report:
    """What one client's program said."""

    version: str = "?"
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def parse(lines: Iterable[str]) -> Report:
    """The report in a program's output."""
    report = Report()
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "version":
            report.version = rest
        elif word == "ok":
            report.passed.append(rest)
        elif word == "FAILED":
            report.failed.append(rest)
    return report


class Checks:
    """Runs checks one after the other; one that fails does not keep the next from running."""

    def __init__(self, version: str) -> None:
        self.failures = 0
        print(f"version {version}", flush=True)

    def check(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as why:
            self.failures += 1
            traceback.print_exc()
            print(f"FAILED {name}: {type(why).__name__}: {' '.join(str(why).split())[:500]}", flush=True)
        else:
            print(f"ok {name}", flush=True)


def expect(what: str, actual: object, expected: object) -> None:
    """Fails unless both are equal."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def expect_in(part: str, whole: str) -> None:
    """Fails unless a text contains another."""
    if part not in whole:
        raise AssertionError(f"no {part!r} in: {whole}")
