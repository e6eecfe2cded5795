"""A report as Markdown: what was aimed at and reached, every target, the CPU of rows that miss theirs, then the parts.

Of the targets, those that are missed come before the others.
"""

from __future__ import annotations

from bench.missed import missed_table
from bench.report import KAFKA, Figure, Ratio, Report, short
from bench.tables import table
from bench.targets import TARGETS, Target

_HEAD = """# Benchmark report

Written by `make bench`; [docs/performance.md](../docs/performance.md) explains what it measures and how to read it.
Each ratio is Headrace's figure divided by the other system's: the median over alternating repeats, with minimum and
maximum.
"""

_RUNS = """The load is the machine's average of the minute before. A part over its time did some of its rows in fewer
rounds."""


def markdown(report: Report, plots: dict[str, str] | None = None) -> str:
    """The whole report; `plots` names the picture of a part."""
    sections = [_HEAD]
    if report.facts:
        sections.append("\n".join(f"- {name}: {value}" for name, value in report.facts.items()))
    if report.left_out:
        sections.append("Not measured:\n\n" + "\n".join(f"- {what}: {why}" for what, why in report.left_out.items()))
    sections.append(f"## Aims\n\n{aims(report)}")
    sections.append(f"## Targets\n\n{targets_table(report)}")
    if missed := missed_table(report):
        sections.append(f"## Rows below Apache Kafka\n\n{missed}")
    for part in report.parts:
        picture = f"\n\n![{part}]({plots[part]})" if plots and part in plots else ""
        sections.append(f"## {part[0].upper()}{part[1:]}\n\n{part_tables(report, part)}{picture}")
    if report.runs:
        rows = [[part, *facts] for part, facts in report.runs.items()]
        runs = table(["part", "commit", "when (UTC)", "load before", "minutes", ""], rows)
        sections.append(f"## Runs\n\n{_RUNS}\n\n{runs}")
    return "\n\n".join(sections) + "\n"


def aims(report: Report) -> str:
    """A line for each: how many rows reach it, how many have to, and the worst."""
    return "\n".join(f"- {_aim(target, report)}" for target in TARGETS if target.is_aim)


def _aim(target: Target, report: Report) -> str:
    known = _known(target, report)
    wanted = f"{target.text}: {target.bound} {target.ratio:g} of {target.against}"
    if not known:
        return f"{wanted}: **not measured**"
    figure, ratio = max(known, key=lambda pair: target.badness(pair[1].median))
    met = sum(target.is_met(ratio.median) for _, ratio in known)
    words = f"**{met} of {len(known)}** rows" if len(known) > 1 else "**reached**" if met else "**missed**"
    if target.rows:
        below = sum(ratio.median < target.floor for _, ratio in known)
        words += f" (wanted {target.rows}), **{below}** below {target.floor:g} (wanted none)"
    return f"{wanted}: {words}; worst {ratio}, {figure.workload}"


def _known(target: Target, report: Report) -> list[tuple[Figure, Ratio]]:
    figures = report.of_goal(target.goal)
    return [(figure, ratio) for figure in figures if (ratio := figure.ratio(target.against)) is not None]


def targets_table(report: Report) -> str:
    """Every target, the missed ones first, each with its worst figure and the reason that was found."""
    rows = sorted((_judged(target, report) for target in TARGETS), key=lambda row: row[0])
    return table(["target", "against", "wanted", "worst figure", "ratio", "met", "reason"], [row for _, row in rows])


def _judged(target: Target, report: Report) -> tuple[float, list[str]]:
    """A row, and where it goes: what is missed by most comes first, what was not measured last."""
    wanted = f"{target.bound} {target.ratio}"
    known = _known(target, report)
    if not known:
        why = report.left_out.get(target.against) or report.left_out.get(target.goal) or "not part of this run"
        return 1.0, [target.text, target.against, wanted, "", "", "not measured", why]
    met = sum(target.is_met(ratio.median) for _, ratio in known)
    figure, ratio = max(known, key=lambda pair: target.badness(pair[1].median))
    badness = target.badness(ratio.median)
    verdict = "yes" if met == len(known) else "no" if met == 0 else f"{met} of {len(known)}"
    reason = target.reason if badness > 1 else ""
    return -badness, [target.text, target.against, wanted, figure.workload, str(ratio), verdict, reason]


def part_tables(report: Report, part: str) -> str:
    """A part's figures: a table for each set of systems that were measured together."""
    by_systems: dict[tuple[str, ...], list[Figure]] = {}
    for figure in report.of_part(part):
        by_systems.setdefault(tuple(figure.values), []).append(figure)
    return "\n\n".join(_figures_table(systems, figures, report) for systems, figures in by_systems.items())


def _figures_table(systems: tuple[str, ...], figures: list[Figure], report: Report) -> str:
    peers = systems[1:]
    absent = [KAFKA] if KAFKA in report.left_out and KAFKA not in systems and peers else []
    noted = any(figure.note for figure in figures)
    head = ["workload", "unit", *systems, *absent, *(f"to {peer}" for peer in peers), *(["note"] if noted else [])]
    rows = []
    for figure in figures:
        medians = [short(figure.median(system)) for system in systems]
        ratios = [str(figure.ratio(peer) or "") for peer in peers]
        note = [figure.note] if noted else []
        rows.append([figure.workload, figure.unit, *medians, *("not run" for _ in absent), *ratios, *note])
    return table(head, rows)
