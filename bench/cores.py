"""Cores of their own: what is started inside `on_core` stays on that core, and all that it starts in its turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple


class Cores(NamedTuple):
    """One for the servers, another for the clients."""

    servers: int
    clients: int


def two_cores() -> Cores | None:
    """The last two that this process may use: the first is where the kernel does most of its own work."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[-1], allowed[-2]) if len(allowed) > 1 else None


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """A process inherits the cores of the thread that starts it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
