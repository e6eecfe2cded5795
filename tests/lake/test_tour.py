"""The tour of docs/lake.md runs as it is written, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker_process import BrokerProcess
from tests.cli.conftest import COMMAND, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs/lake.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 240
PNG = b"\x89PNG\r\n\x1a\n"


def test_the_tour_runs_as_it_is_written(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, in one namespace; only the broker is another one. What a block prints stands in the text behind it."""
    _, _, page = PAGE.read_text().partition("## A tour\n")
    tour = page[: page.index("\n## ")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {}
    printed, promised = list[str](), list[str]()
    for kind, text in BLOCK.findall(tour):
        if kind == "python":
            printed.append(run_block(text.replace(ADDRESS, broker.address), names))
        elif kind == "console":
            run_commands(text, environment(HEADRACE_BOOTSTRAP=broker.address, TMPDIR=str(tmp_path)))
        else:
            promised.append(text)
    assert [without_padding(said) for said in printed if said] == [without_padding(said) for said in promised]
    assert (tmp_path / "orders.png").read_bytes().startswith(PNG)
    assert (PAGE.parent / "images/orders.png").read_bytes().startswith(PNG)


def run_block(text: str, names: dict[str, Any]) -> str:
    """What a block prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(text, PAGE.name, "exec"), names)
    return output.getvalue()


def run_commands(text: str, environ: dict[str, str]) -> None:
    """Runs the commands of a console block; those of which the page shows the output print that."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, promised = part.partition("\n")
        ran = subprocess.run(
            [*COMMAND, *shlex.split(command)[1:]],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout
        if promised:
            assert ran.stdout == promised


def without_padding(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
