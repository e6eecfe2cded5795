"""Tunes malloc and the garbage collector for thousands of short-lived requests of up to a megabyte each.

Freed memory stays with the process, up to a limit, instead of being returned to the system at once. By default glibc
returns it whenever 128 KB are free at the end of its heap, and page faults bring it back page by page. With requests
and batches of a megabyte, these faults took a third of a busy broker's CPU.
"""

from __future__ import annotations

import ctypes
import gc

_KEPT_BYTES = 128 << 20
"""Besides the tail cache, whose memory is needed again after a topic that filled it was deleted."""
_LARGEST_INT = 2**31 - 1
_BLOCK_BYTES = 32 << 20
"""Smaller blocks come from the heap, larger ones from mmap: glibc's maximum."""
_OBJECTS_BETWEEN_SEARCHES = 10_000

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory(cache_bytes: int) -> None:
    """Sets the thresholds for this process; C libraries other than glibc do not have them and do not need them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, min(_KEPT_BYTES + cache_bytes, _LARGEST_INT))
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)


def collect_less() -> None:
    """Runs the cyclic garbage collector less often, and never over objects from before the first request.

    A request creates a few dozen objects and frees them all without cycles: with Python's default threshold of 700,
    collection takes a tenth of a small produce's time.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES, 20, 20)
