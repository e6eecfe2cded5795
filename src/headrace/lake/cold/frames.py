"""The protocol between the broker and its cold reader over a socket: requests, responses, frames.

A frame is two lengths, a small message and a payload. The payload is record batches, received straight into the memory
that the consumer's response is sent from: a megabyte costs the event loop one copy, in pieces of what the socket holds.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.cold_log import ColdPartition, ColdTable, Held

_LENGTHS: Final = struct.Struct(">II")
MOST_BYTES: Final = 1 << 30
"""A larger frame cannot be ours."""


class OpenLake(msgspec.Struct, frozen=True, tag=True):
    """The first frame: which lake. Not on the command line, because options contain credentials."""

    uri: str
    storage_options: dict[str, str]
    cluster_id: str
    patience_s: float = 0.0
    """The broker's timeout."""
    cpu_percent: int = 0
    """Share of one core for building batches while the machine is busy; 0: no limit."""


class AskCheck(msgspec.Struct, frozen=True, tag=True):
    """Asks whether the lake is reachable."""


class AskHeld(msgspec.Struct, frozen=True, tag=True):
    """`ColdLog.held`."""

    partition: ColdPartition
    fresh: bool


class AskRead(msgspec.Struct, frozen=True, tag=True):
    """`ColdLog.read`."""

    partition: ColdPartition
    offset: int
    stop: int
    max_bytes: int


class AskTime(msgspec.Struct, frozen=True, tag=True):
    """`ColdLog.find_time`; without a timestamp `find_newest`."""

    partition: ColdPartition
    timestamp: int | None
    first: int
    stop: int


class AskRetained(msgspec.Struct, frozen=True, tag=True):
    """`ColdLog.retained_start`."""

    partition: ColdPartition
    first: int
    stop: int
    oldest_ms: int | None
    most_bytes: int | None


class AskTable(msgspec.Struct, frozen=True, tag=True):
    """`ColdLog.describe`."""

    partition: ColdPartition


Ask = AskCheck | AskHeld | AskRead | AskTime | AskRetained | AskTable


class Question(msgspec.Struct, frozen=True, tag=True):
    """A request with its number, which the response repeats."""

    number: int
    ask: Ask


class SayReady(msgspec.Struct, frozen=True, tag=True):
    """The lake is reachable; also the first frame, once everything is loaded."""


class SayHeld(msgspec.Struct, frozen=True, tag=True):
    """What the table has, or why it has nothing."""

    held: Held | None
    reason: str | None


class SayRead(msgspec.Struct, frozen=True, tag=True):
    """The sizes of the batches in the payload."""

    next_offset: int
    sizes: list[int]


class SayFound(msgspec.Struct, frozen=True, tag=True):
    """Offset and timestamp of a record, or none."""

    found: tuple[int, int] | None


class SayStart(msgspec.Struct, frozen=True, tag=True):
    """An offset."""

    offset: int


class SayAway(msgspec.Struct, frozen=True, tag=True):
    """Why a request failed."""

    message: str


class SayTable(msgspec.Struct, frozen=True, tag=True):
    """The description of a table."""

    table: ColdTable


Say = SayTable | SayReady | SayHeld | SayRead | SayFound | SayStart | SayAway


class Answer(msgspec.Struct, frozen=True):
    """A response with its request's number."""

    number: int
    say: Say


def frame(message: msgspec.Struct, payload_bytes: int = 0) -> bytes:
    """The start of a frame, to be followed by this many bytes of payload."""
    content = msgspec.msgpack.encode(message)
    return _LENGTHS.pack(len(content), payload_bytes) + content


class FrameProtocol(asyncio.BufferedProtocol):
    """Receives frames, each into its own memory."""

    def __init__(self, on_frame: Callable[[memoryview, memoryview], None], on_lost: Callable[[], None]) -> None:
        self._on_frame, self._on_lost = on_frame, on_lost
        self._paused: asyncio.Future[None] | None = None
        self._expect_lengths()

    def _expect_lengths(self) -> None:
        self._buffer, self._filled, self._message_bytes = memoryview(bytearray(_LENGTHS.size)), 0, -1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._buffer):
            return
        if self._message_bytes < 0:
            message_bytes, payload_bytes = _LENGTHS.unpack(self._buffer)
            if not 0 < message_bytes + payload_bytes <= MOST_BYTES:
                raise ValueError(f"A frame of {message_bytes + payload_bytes} bytes.")
            self._buffer = memoryview(bytearray(message_bytes + payload_bytes))
            self._filled, self._message_bytes = 0, message_bytes
        else:
            whole, message_bytes = self._buffer, self._message_bytes
            self._expect_lengths()
            self._on_frame(whole[:message_bytes], whole[message_bytes:])

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        self._on_lost()

    # Flow control

    def pause_writing(self) -> None:
        self._paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)
        self._paused = None

    async def drained(self) -> None:
        """Returns once there is room to write."""
        if self._paused is not None:
            await asyncio.shield(self._paused)
