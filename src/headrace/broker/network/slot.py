"""A request's place among those of its connection: responses leave in the order of the slots."""

from __future__ import annotations

import asyncio
import time

from headrace.wire.codec import Pieces
from headrace.wire.frame import RequestHeader


class RequestSlot:
    """A request that was started, and its answer once there is one."""

    __slots__ = ("began_s", "done", "header", "pieces", "size_bytes", "started", "task")

    def __init__(self, header: RequestHeader, size_bytes: int) -> None:
        self.header = header
        self.size_bytes = size_bytes
        self.pieces: Pieces | None = None
        self.task: asyncio.Task[None] | None = None
        self.began_s = time.perf_counter()
        self.started = False
        self.done = False

    def cancel(self) -> None:
        """A task that did not start yet is left alone: cancelled, it would never tell that it ended."""
        if self.task is not None and self.started:
            self.task.cancel()
