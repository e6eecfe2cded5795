"""Results as files, one for each part, so that a run can be broken off, a part repeated, and the report composed anew.

A file has the part's figures, and the commit, time and load that they were measured at. A part that fails leaves its
last good file alone; what went wrong is kept beside it and shown in the report.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from bench.interpreter import ROOT
from bench.report import Figure, Report

FOLDER: Final = Path(__file__).parent / ".cache" / "results"


class Moment(msgspec.Struct, frozen=True):
    """Where and when a part was measured."""

    commit: str
    began: str
    load: float
    """Average of the minute before."""


class Result(msgspec.Struct, frozen=True):
    """Of one part."""

    part: str
    moment: Moment
    minutes: float
    was_late: bool
    """Whether rounds were left out for lack of time."""
    facts: dict[str, str]
    figures: list[Figure]
    left_out: dict[str, str]


def now() -> Moment:
    return Moment(_commit(), time.strftime("%Y-%m-%d %H:%M", time.gmtime()), os.getloadavg()[0])


def _commit() -> str:
    """The short hash, with a plus if the tree has changes; empty without Git."""
    try:
        words = ("git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+")
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def save(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, result.part)
    path.with_suffix(".new").write_bytes(msgspec.json.encode(result))
    path.with_suffix(".new").rename(path)
    _failure(folder, result.part).unlink(missing_ok=True)


def save_failure(folder: Path, part: str, why: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _failure(folder, part).write_text(why)


def load(folder: Path, parts: Iterable[str]) -> list[Result]:
    """The newest result of each part that has one, in the order of the parts."""
    paths = [path for part in parts if (path := _path(folder, part)).exists()]
    return [msgspec.json.decode(path.read_bytes(), type=Result) for path in paths]


def compose(folder: Path, parts: Iterable[str]) -> Report:
    """A report of all results; facts are those of the newest."""
    every = list(parts)
    results = load(folder, every)
    report = Report()
    for result in results:
        report.figures += result.figures
        report.left_out |= result.left_out
        report.runs[result.part] = [
            result.moment.commit, result.moment.began, f"{result.moment.load:.1f}", f"{result.minutes:.1f}",
            "fewer rounds" if result.was_late else "",
        ]  # fmt: skip
    if results:
        report.facts = max(results, key=lambda result: result.moment.began).facts
    for part in every:
        if (failure := _failure(folder, part)).exists():
            of = "its figures are from an earlier run" if part in report.runs else "there are no figures"
            report.left_out[part] = f"it failed ({of}): {failure.read_text()}"
    return report


def _path(folder: Path, part: str) -> Path:
    return folder / f"{part}.json"


def _failure(folder: Path, part: str) -> Path:
    return folder / f"{part}.failed"
