"""Pooled buffers for large requests.

Python clears a new buffer before a request is read into it, and one that grows is cleared and copied several times: a
tenth to a fifth of the broker's CPU with producers that fill their batches. So some buffers of that size are kept. A
buffer is reused only when no view of it is left, which the bytearray itself tells: it refuses to be resized until then.
"""

from __future__ import annotations

from typing import cast

SIZE_BYTES = (1 << 20) + (4 << 10)
"""A batch of the default max.message.bytes with what a request has around it; clients do not send more by default."""
LEAST_BYTES = 64 << 10
_MOST = 16

Frame = bytearray | memoryview
"""A request as it arrived; in a buffer that is kept it is a view."""


class FrameBuffers:
    """The buffers that are free, and how many more may be made."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._unmade = _MOST

    def take(self, frame_bytes: int) -> memoryview | None:
        """Room for a frame; None if its size is not a usual one, or all buffers are in use."""
        if not LEAST_BYTES <= frame_bytes <= SIZE_BYTES:
            return None
        if self._free:
            return memoryview(self._free.pop())[:frame_bytes]
        if self._unmade:
            self._unmade -= 1
            return memoryview(bytearray(SIZE_BYTES))[:frame_bytes]
        return None

    def give(self, frame: Frame) -> None:
        """A frame that is done with; only a view is of one of these buffers."""
        if isinstance(frame, bytearray):
            return
        buffer = cast("bytearray", frame.obj)
        frame.release()
        try:
            buffer.append(buffer.pop())
        except BufferError:
            self._unmade += 1  # somebody still looks at it: it goes when they do, and another takes its place
        else:
            self._free.append(buffer)
