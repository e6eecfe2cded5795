"""Runs tasks in a Spark worker, a process that runs one task after another.

PySpark collects garbage after every task, and everything the libraries loaded would be looked at again each time: a
third of the CPU of an archive's tasks. So after a worker's first task, what is loaded is taken out of later
collections. Tasks allocate and free buffers of megabytes; glibc gives such memory back to the system at once, which
clears it for the next task. So a worker keeps some of it.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

from headrace.lake.table.names import marked

_KEPT_BYTES = 64 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 1024 * 1024
"""What glibc accepts; larger allocations are never kept."""

_settled = False


def run_task(mark: str, run: Callable[[bytes], bytes], content: bytes) -> bytes:
    """Runs a task whose files carry the mark."""
    global _settled
    if not _settled:
        _keep_memory()
    try:
        return marked(mark, run, content)
    finally:
        if not _settled:
            gc.collect()
            gc.freeze()
            _settled = True


def _keep_memory() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
