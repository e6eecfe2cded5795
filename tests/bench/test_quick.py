"""The benchmark's quick form runs from end to end and measures what it says; how fast anything is decides nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import PARTS
from bench.targets import TARGETS

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 580
FIGURE = re.compile(r"^  (?P<workload>.+) \[(?P<unit>.+)\]: (?P<medians>.+)$", re.MULTILINE)


def run_quick(out: Path) -> str:
    """What `python -m bench --quick` prints; it writes its report to a folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--out", str(out)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_quick_form_measures_every_part_and_reports_every_target(tmp_path: Path) -> None:
    """One test, because the run takes a minute."""
    check_figures(run_quick(tmp_path))
    check_report(tmp_path)


def check_figures(printed: str) -> None:
    """Every part gave figures, and none failed."""
    for name, part in PARTS.items():
        if part.in_quick:
            section = printed.split(f"{name}: {part.about}\n", 1)[1]
            assert section.startswith("  "), f"{name} gave no figure"
    assert "it failed" not in printed
    medians = [float(number.replace(",", "")) for row in FIGURE.finditer(printed) for number in numbers(row["medians"])]
    assert medians
    assert all(median > 0 for median in medians)


def numbers(medians: str) -> list[str]:
    """The figure behind each system's name, which may have a comma in it."""
    return re.findall(r" ([\d.,]*\d(?:e[+-]\d+)?)(?=, |$)", medians)


def check_report(out: Path) -> None:
    """It has every target, and a picture for each part that compares."""
    report = (out / "report.md").read_text()
    for target in TARGETS:
        assert f"| {target.text}" in report
    pictures = re.findall(r"!\[.+\]\((plots/.+\.svg)\)", report)
    assert pictures
    for picture in pictures:
        assert (out / picture).read_text().startswith("<?xml")
