"""Work that several callers share: each may leave before it ends, and its failure answers those who stay."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve(work: asyncio.Future[Any]) -> None:
    """Marks a failure as seen, so that asyncio does not report it when no caller is left."""
    if not work.cancelled():
        work.exception()
