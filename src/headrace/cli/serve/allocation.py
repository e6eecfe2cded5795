"""How the broker's process handles memory, for requests that come and go by the thousand, up to a megabyte each.

Memory that was freed stays with the broker, up to a bound, instead of going back to the system at once. glibc returns
it whenever 128 KB are free at the end of its heap, and gets it again page by page. Requests and batches of a megabyte
come and go all the time: faulting their pages in again took a third of a busy broker's CPU.
"""

from __future__ import annotations

import ctypes
import gc

_KEPT_BYTES = 128 << 20
_BLOCK_BYTES = 32 << 20
"""Smaller blocks come from the heap, larger ones from the system: the most that glibc takes."""
_OBJECTS_BETWEEN_SEARCHES = 10_000

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Sets it for this process; other C libraries than glibc have no such switch and need none of this."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)


def collect_less() -> None:
    """Looks for cycles of garbage less often, and not among what was there before the first request.

    A request makes a few dozen objects and drops them all without a cycle: with Python's own threshold of 700 the
    search takes a tenth of a small produce's time.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES, 20, 20)
