"""The results of a run: figures of systems that alternated in the same run, and what could not be measured.

A part of the benchmark gets a `Report` and adds figures to it; how they are shown is render.py's matter, what they
are held against is in targets.py:

    report.add(Figure(
        part="produce",
        workload="100 B, 1 partition",
        unit="records/s",
        values={HEADRACE: [610e3, 655e3, 640e3], KAFKA: [480e3, 512e3, 499e3]},
        goal="produce",
    ))

`values` holds one number for each repeat, in the order in which the systems took turns, so that the nth numbers were
measured next to each other. A ratio is the median of those pairs' ratios, its spread their least and greatest. A
system that was not there has no entry; why is said once, with `report.leave_out(KAFKA, "Maven is not installed")`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HEADRACE = "Headrace"
KAFKA = "Apache Kafka"
NULL_BROKER = "null broker"
RAW_REDIS = "raw Redis"


@dataclass(frozen=True)
class Ratio:
    """The subject's figure divided by another's: median, least and greatest over the repeats."""

    median: float
    least: float
    greatest: float

    def __str__(self) -> str:
        if self.least == self.greatest:
            return f"{self.median:.2f}"
        return f"{self.median:.2f} ({self.least:.2f} to {self.greatest:.2f})"


@dataclass(frozen=True)
class Figure:
    """One workload's measurements. The first system of `values` is the subject: ratios are its to the others'."""

    part: str
    workload: str
    unit: str
    values: Mapping[str, Sequence[float]]
    goal: str | None = None
    """The key in targets.py of what this figure is held against."""
    note: str = ""
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """CPU by system and process (client, broker, store), in milliseconds a MB: the medians of the same runs."""

    @property
    def subject(self) -> str:
        return next(iter(self.values))

    def median(self, system: str) -> float:
        return statistics.median(self.values[system])

    def ratio(self, against: str) -> Ratio | None:
        """None where one of the two was not measured."""
        peer, subject = self.values.get(against), self.values[self.subject]
        if not peer or not subject:
            return None
        ratios = [mine / theirs for mine, theirs in zip(subject, peer, strict=False) if theirs]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


@dataclass
class Report:
    """All figures of a run, in the order in which they were found."""

    figures: list[Figure] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    """What was measured on what: versions, cores."""
    runs: dict[str, list[str]] = field(default_factory=dict)
    """Of each part: commit, time, load, minutes, and whether rounds were cut (results.py)."""

    def add(self, figure: Figure) -> None:
        """Takes a figure in and says it on the terminal, because a full run is long."""
        self.figures.append(figure)
        medians = ", ".join(f"{system} {short(figure.median(system))}" for system in figure.values)
        print(f"  {figure.workload} [{figure.unit}]: {medians}", flush=True)

    def leave_out(self, what: str, why: str) -> None:
        """Notes a system or a part that could not be measured."""
        self.left_out[what] = why
        print(f"  {what}: not measured: {why}", flush=True)

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys(figure.part for figure in self.figures))

    def of_part(self, part: str) -> list[Figure]:
        return [figure for figure in self.figures if figure.part == part]

    def of_goal(self, goal: str) -> list[Figure]:
        return [figure for figure in self.figures if figure.goal == goal]


def short(value: float) -> str:
    """A number with three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
