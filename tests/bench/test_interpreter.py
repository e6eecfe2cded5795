"""Servers run on a Python that can load the environment's packages, and the report names its build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import interpreter


@pytest.fixture(autouse=True)
def chosen_anew() -> None:
    interpreter.for_servers.cache_clear()


def test_the_environments_own_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_PYTHON", "own")
    choice = interpreter.for_servers()
    assert choice.build.path == sys.executable
    assert str(choice.build).startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}.")


def test_one_that_cannot_load_the_packages_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    broken.chmod(0o755)
    monkeypatch.setenv("BENCH_PYTHON", str(broken))
    with pytest.raises(ValueError, match="cannot load"):
        interpreter.for_servers()


def test_a_build_says_how_it_was_optimised() -> None:
    build = interpreter.Build("python", "/usr", "3.11.9", "abi", "'--enable-optimizations' '--with-lto' -O2 -O3", False)
    assert str(build) == "Python 3.11.9 (-O3, PGO and LTO, linked into the program)"
