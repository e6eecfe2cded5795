"""Results as files, one for each part, so that a run can be broken off, a part repeated, and the report composed anew.

They are kept in the repository beside the report, so that one part can be repeated and the others need not be. A file
has the part's figures, a line each, and the commit, time and load that they were measured at. A part that fails leaves
its last good file alone; what went wrong is kept beside it and shown in the report.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.interpreter import ROOT
from bench.report import Figure, Report

FOLDER: Final = Path(__file__).parent / "results"
_NOT_MEASURED: Final = (":!bench/results", ":!bench/plots", ":!docs", ":!*.md")


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
    """Of what is measured: the short hash of its last commit, with a plus if it has changes since; empty without Git.

    Results, the report and other texts are left out: writing them down makes no new version.
    """
    try:
        return _git("log", "-1", "--format=%h") + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words, "--", ".", *_NOT_MEASURED]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def save(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, result.part)
    path.with_suffix(".new").write_bytes(_text(result))
    path.with_suffix(".new").rename(path)
    _failure(folder, result.part).unlink(missing_ok=True)


def _text(result: Result) -> bytes:
    """JSON, a line for each figure, without what a figure does not have. Systems stay in the order they have."""
    facts = msgspec.to_builtins(result)
    figures = [{name: value for name, value in figure.items() if value} for figure in facts.pop("figures")]
    rows = b",\n".join(msgspec.json.encode(_rounded(figure)) for figure in figures)
    return msgspec.json.encode(_rounded(facts)).removesuffix(b"}") + b',"figures":[\n' + rows + b"\n]}\n"


def _rounded(value: Any) -> Any:
    """Six digits of each number are more than can be measured."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


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
