"""Lines as they arrive, so that each line typed, or piped in from a growing log, is sent at once.

Python's buffered reading cannot tell "no more for now" from "no more at all".
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

_READ_BYTES = 1 << 16


def lines(descriptor: int) -> Iterator[bytes | None]:
    """Yields each line without its newline, and None whenever the next read would block."""
    rest = b""
    while True:
        if not _has_more(descriptor):
            yield None
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            break
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


def _has_more(descriptor: int) -> bool:
    """Whether a read returns at once; for a file it always does."""
    ready, _, _ = select.select([descriptor], [], [], 0)
    return bool(ready)
