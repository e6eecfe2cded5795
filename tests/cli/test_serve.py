"""`headrace serve` refuses, with a sentence, what could not work."""

from __future__ import annotations

import importlib.util

import pytest
from click.testing import CliRunner

from headrace.cli.main import main


def test_a_lake_without_the_packages_to_read_it_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["serve", "--lake", "tables"])
    assert result.exit_code == 2
    assert "pip install 'headrace[tiered]'" in result.output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--host", "0.0.0.0"], "add --advertised HOST:PORT"),
        (["--host", "::"], "add --advertised HOST:PORT"),
        (["--lake", "s3://tables", "--lake-storage", "aws_region"], "--lake-storage 'aws_region' is not KEY=VALUE"),
    ],
)
def test_what_could_not_work_is_refused_with_what_to_do(flags: list[str], says: str) -> None:
    result = CliRunner().invoke(main, ["serve", *flags])
    assert result.exit_code == 2
    assert says in result.output
