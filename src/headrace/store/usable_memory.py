"""The memory that this process may use, and the tail cache's share of it."""

from __future__ import annotations

import os
from pathlib import Path

AUTOMATIC = -1
"""As a size: a share of the memory."""

_MEMORY_IF_UNKNOWN_BYTES = 2 << 30
_CACHE_SHARE = 16
_LARGEST_CACHE_BYTES = 1 << 30
"""A gigabyte is the heap that Apache Kafka's broker takes by default, beside its page cache."""


def tail_cache_bytes(chosen_bytes: int, nodes: int = 1, root: Path = Path("/")) -> int:
    """The tail cache of one of the `nodes` on this machine: what was chosen, or a share of the memory."""
    if chosen_bytes != AUTOMATIC:
        return chosen_bytes
    return min(usable_memory_bytes(root) // _CACHE_SHARE, _LARGEST_CACHE_BYTES) // nodes


def usable_memory_bytes(root: Path = Path("/")) -> int:
    """The machine's memory, or the smallest limit of the control groups around us. `root` is for tests."""
    try:
        machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        machine_bytes = _MEMORY_IF_UNKNOWN_BYTES
    return min([machine_bytes, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> list[int]:
    """Limits of every control group from ours up, in both layouts (v2 `memory.max`, v1 below `memory/`)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        here = base / group.lstrip("/")
        for directory in (here, *here.parents):
            limits.append(_limit(directory / name))
            if directory == base:
                break
    return [limit for limit in limits if limit is not None]


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() and int(text) > 0 else None
