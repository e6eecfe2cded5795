"""A request's place among those of its connection: responses leave in the order of the slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from headrace.broker.network.frame_buffers import Frame
from headrace.wire.codec import Pieces
from headrace.wire.frame import RequestHeader
from headrace.wire.schema import Payload


class RequestSlot:
    """A request that was started, and its answer once there is one."""

    __slots__ = (
        "began_s",
        "done",
        "frame",
        "header",
        "is_unsubmitted",
        "on_cancel",
        "pieces",
        "request",
        "size_bytes",
        "started",
        "task",
    )

    def __init__(self, header: RequestHeader, frame: Frame) -> None:
        self.header = header
        self.frame = frame
        self.size_bytes = len(frame)
        self.request: Payload | None = None
        """What the frame says, once it was read."""
        self.pieces: Pieces | None = None
        self.task: asyncio.Task[None] | None = None
        self.began_s = time.perf_counter()
        self.started = False
        self.done = False
        self.is_unsubmitted = False
        """Whether it is a Produce that others must not overtake."""
        self.on_cancel: Callable[[], None] | None = None
        """Ends a request that waits without a task."""

    def cancel(self) -> None:
        """A task that did not start yet is left alone: cancelled, it would never tell that it ended."""
        if self.task is not None and self.started:
            self.task.cancel()
        elif self.task is None and self.on_cancel is not None:
            self.on_cancel()
