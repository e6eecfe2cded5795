"""The memory that a process may use, and what the embedded server and the tail cache take of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.serve.supervisor import node_settings
from headrace.cli.settings.table import Settings
from headrace.store.embedded.options import memory_share_bytes
from headrace.store.usable_memory import AUTOMATIC, tail_cache_bytes, usable_memory_bytes


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
    assert tail_cache_bytes(AUTOMATIC, root=root) == usable // 16


def test_without_a_limit_it_is_the_machines_memory(tmp_path: Path) -> None:
    root = machine_with(tmp_path, "0::/\n", {"memory.max": "max"})
    assert usable_memory_bytes(root) == usable_memory_bytes(tmp_path / "nowhere") > 1 << 20


@pytest.mark.parametrize(
    ("memory_bytes", "nodes", "expected"), [(1 << 30, 1, 64 << 20), (1 << 30, 4, 16 << 20), (1 << 40, 1, 1 << 30)]
)
def test_the_tail_cache_is_a_share_of_the_memory(tmp_path: Path, memory_bytes: int, nodes: int, expected: int) -> None:
    root = machine_with(tmp_path, "0::/\n", {"memory.max": str(memory_bytes)})
    the_machines = usable_memory_bytes() // 16 // nodes
    assert tail_cache_bytes(AUTOMATIC, nodes, root) == min(expected, the_machines)


@pytest.mark.parametrize("chosen_bytes", [0, 2 << 30])
def test_a_tail_cache_that_was_chosen_is_as_chosen(chosen_bytes: int) -> None:
    assert tail_cache_bytes(chosen_bytes, nodes=4) == chosen_bytes


def test_nodes_of_one_machine_share_one_tail_cache() -> None:
    settings = Settings(nodes=4)
    shares = [node_settings(settings, index).tail_cache_bytes for index in range(4)]
    assert shares == [tail_cache_bytes(AUTOMATIC) // 4] * 4
    assert node_settings(Settings(nodes=4, tail_cache_bytes=1 << 20), 1).tail_cache_bytes == 1 << 20
