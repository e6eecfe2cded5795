"""CPU seconds and resident memory of a process, as the kernel counts them.

CPU seconds say what work costs even on a machine that does other things too, where the clock on the wall does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_CPU_CLOCK = 2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, all of its threads, those that ended too."""
    # Linux gives each process a clock of its own; /proc/<pid>/stat has the same time, in steps of 10 ms.
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / (1 << 20)
