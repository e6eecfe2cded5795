"""Cold records for the broker: the lake's implementation of `cold_log` on the broker's event loop.

A separate process does the work (process.py): reading Parquet and building batches would block the event loop. This
side starts it, sends requests, and never waits without a timeout: a child that does not respond is killed, a dead one
is restarted by the next request, and waiting callers get `ColdAway`. Nothing here imports pyarrow.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from headrace.cold_log import ColdAway, ColdBatches, ColdPartition, ColdTable, Held
from headrace.lake.cold import frames

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""Time to load Python and the libraries; a second or two on an idle machine."""

ANSWER_TIMEOUT_S = 30.0
"""The child gives up on a table well before this, or before three times the broker's own timeout if that is longer:
a silent child hangs."""
_PATIENCES = 3

START_AGAIN_S = 1.0
"""Pause before another attempt after a failed start."""

MOST_READ_BYTES = 8 * 1024 * 1024
"""Maximum size of one response, whatever the request."""

S = TypeVar("S", bound=frames.Say)

_PACKAGES = ("deltalake", "numpy", "obstore", "pyarrow")


class ColdUnusable(ValueError):
    """Cold reads cannot work in this installation; says what to do."""


def open_cold_log(
    uri: str, storage_options: Mapping[str, str], cluster_id: str, *, patience_s: float = 0.0, cpu_percent: int = 0
) -> LakeLog:
    """A reader of the tables below `uri`, with the broker's timeout; the first request starts its process.

    `cpu_percent` of one core is what it may use while the machine is busy; 0: no limit.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ColdUnusable(f"Reading the lake needs {', '.join(missing)}: pip install 'headrace[tiered]'.")
    return LakeLog(frames.OpenLake(uri, dict(storage_options), cluster_id, patience_s, cpu_percent))


class LakeLog:
    """The `ColdLog` implementation for a lake."""

    def __init__(self, lake: frames.OpenLake) -> None:
        self._lake = lake
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._failed_at = float("-inf")
        self._failure = ""
        self._reasons: dict[ColdPartition, str] = {}
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The reading process, if it runs."""
        return self._child.pid if self._child is not None and self._child.is_alive else None

    async def check(self) -> None:
        """Raises if the lake cannot be reached at all."""
        await self._ask(frames.AskCheck(), frames.SayReady)

    async def held(self, partition: ColdPartition, *, fresh: bool = False) -> Held | None:
        """What the live files have of a partition."""
        try:
            said, _ = await self._ask(frames.AskHeld(partition, fresh), frames.SayHeld)
        except ColdAway as away:
            self._reasons[partition] = str(away)
            raise
        if said.reason is None:
            self._reasons.pop(partition, None)
        else:
            self._reasons[partition] = said.reason
        return said.held

    def reason(self, partition: ColdPartition) -> str | None:
        """Why the last call of `held` found nothing, or failed."""
        return self._reasons.get(partition)

    async def read(self, partition: ColdPartition, offset: int, stop: int, max_bytes: int) -> ColdBatches:
        """Batches from an offset on."""
        ask = frames.AskRead(partition, offset, stop, min(max_bytes, MOST_READ_BYTES))
        said, payload = await self._ask(ask, frames.SayRead)
        batches, start = [], 0
        for size in said.sizes:
            batches.append(payload[start : start + size])
            start += size
        return ColdBatches(batches, said.next_offset)

    async def find_time(
        self, partition: ColdPartition, timestamp: int, first: int, stop: int
    ) -> tuple[int, int] | None:
        """The first record at or after a time."""
        said, _ = await self._ask(frames.AskTime(partition, timestamp, first, stop), frames.SayFound)
        return said.found

    async def find_newest(self, partition: ColdPartition, first: int, stop: int) -> tuple[int, int] | None:
        """The first record with the highest timestamp."""
        said, _ = await self._ask(frames.AskTime(partition, None, first, stop), frames.SayFound)
        return said.found

    async def describe(self, partition: ColdPartition) -> ColdTable:
        """The table of a partition's topic."""
        said, _ = await self._ask(frames.AskTable(partition), frames.SayTable)
        return said.table

    async def retained_start(
        self, partition: ColdPartition, first: int, stop: int, oldest_ms: int | None, most_bytes: int | None
    ) -> int:
        """The earliest log start that retention allows."""
        ask = frames.AskRetained(partition, first, stop, oldest_ms, most_bytes)
        said, _ = await self._ask(ask, frames.SayStart)
        return said.offset

    async def close(self) -> None:
        """Ends the process."""
        self._closed = True
        if self._child is not None:
            await self._child.end()

    async def _ask(self, ask: frames.Ask, expected: type[S]) -> tuple[S, memoryview]:
        child = await self._alive()
        said, payload = await child.ask(ask)
        if isinstance(said, frames.SayAway):
            raise ColdAway(said.message)
        if not isinstance(said, expected):
            raise TypeError(f"{type(said).__name__} is not a response to {type(ask).__name__}.")
        return said, payload

    async def _alive(self) -> _Child:
        """The running child, started if there is none."""
        if self._child is not None and self._child.is_alive:
            return self._child
        async with self._starting:
            if self._child is not None and self._child.is_alive:
                return self._child
            if self._closed:
                raise ColdAway("The broker is stopping.")
            if time.monotonic() - self._failed_at < START_AGAIN_S:
                raise ColdAway(self._failure)
            try:
                self._child = await _Child.start(self._lake)
            except (OSError, TimeoutError, ColdAway) as error:
                self._failed_at, self._failure = time.monotonic(), f"The cold reader did not start: {error}"
                log.warning("%s", self._failure)
                raise ColdAway(self._failure) from None
            return self._child


class _Child:
    """A running process and its outstanding requests."""

    def __init__(self, process: asyncio.subprocess.Process, patience_s: float) -> None:
        self.pid = process.pid
        self.is_alive = True
        self._patience_s = patience_s
        self._process = process
        self._waiting: dict[int, asyncio.Future[tuple[frames.Say, memoryview]]] = {}
        self._last = 0
        self._decoder = msgspec.msgpack.Decoder(frames.Answer)
        self._transport: asyncio.Transport | None = None
        self._reaping: asyncio.Task[int] | None = None

    @classmethod
    async def start(cls, lake: frames.OpenLake) -> _Child:
        """Starts it and returns once it is fully loaded."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "headrace.lake.cold.process", str(theirs.fileno()), str(os.getpid())]
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        child = cls(process, lake.patience_s)
        ours.setblocking(False)
        ready = asyncio.get_running_loop().create_future()
        child._waiting[0] = ready
        child._transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: frames.FrameProtocol(child._on_frame, child._on_lost), sock=ours
        )
        child._transport.write(frames.frame(lake))
        try:
            said, _ = await child._answer(0, ready, START_TIMEOUT_S)
        except asyncio.CancelledError:
            child._kill()
            raise
        if isinstance(said, frames.SayAway):
            child._kill()
            raise ColdAway(said.message)
        return child

    async def ask(self, ask: frames.Ask) -> tuple[frames.Say, memoryview]:
        """The response within the timeout, or `ColdAway`."""
        assert self._transport is not None
        self._last += 1
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        self._transport.write(frames.frame(frames.Question(self._last, ask)))
        return await self._answer(self._last, future, max(ANSWER_TIMEOUT_S, _PATIENCES * self._patience_s))

    async def _answer(
        self, number: int, future: asyncio.Future[tuple[frames.Say, memoryview]], timeout_s: float
    ) -> tuple[frames.Say, memoryview]:
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            log.warning("The cold reader, process %d, does not respond and is killed", self.pid)
            self._kill()
            raise ColdAway(f"The cold reader did not respond within {timeout_s:.0f} s.") from None
        finally:
            self._waiting.pop(number, None)

    def _on_frame(self, message: memoryview, payload: memoryview) -> None:
        answer = self._decoder.decode(message)
        future = self._waiting.get(answer.number)
        if future is not None and not future.done():
            future.set_result((answer.say, payload))

    def _on_lost(self) -> None:
        self.is_alive = False
        self._kill()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ColdAway("The cold reader exited unexpectedly and is restarted."))
        # Without this wait it would stay a zombie.
        self._reaping = asyncio.get_running_loop().create_task(self._process.wait())

    def _kill(self) -> None:
        self.is_alive = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Closes the connection, which makes it exit."""
        assert self._transport is not None
        self._transport.close()
        self._kill()
        await self._process.wait()
