"""The processes of an archive: its JVM, and the Python workers of that. Read from /proc, to be killed one by one."""

from __future__ import annotations

from pathlib import Path


def jvm_of(archive: int) -> int | None:
    """The JVM that an archive has started."""
    return next((pid for pid in _below(archive) if _command(pid)[:1] and _command(pid)[0].endswith("java")), None)


def workers_of(archive: int) -> list[int]:
    """The Python processes that Spark's tasks run in: those that its daemon has forked."""
    forked = [pid for pid in _below(archive) if "pyspark.daemon" in _command(pid)]
    return [pid for pid in forked if _parent(pid) in forked]


def _below(pid: int) -> list[int]:
    """All processes that come from one, however far."""
    parents = {int(entry.name): _parent(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    found, last = [pid], [pid]
    while last:
        last = [child for child, parent in parents.items() if parent in last]
        found += last
    return found[1:]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []
