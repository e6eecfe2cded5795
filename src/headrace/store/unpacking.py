"""Inspects batches without blocking the event loop.

A batch of 4 KB can expand to 100 MiB of records, so all decompression goes through here. Small batches are done on the
loop: a thread costs 30 us, and 2 ms when the loop is busy. The rest goes to threads, whose codecs release the GIL, at
most two batches at a time, which bounds the memory. Records are scanned on the loop in steps of about a millisecond.
All of this shares two milliseconds of each loop iteration. Waiters are served in order, and a request that may need
many batches (`one_at_a_time`) has one place in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeVar

from headrace.wire.batch import BatchHeader
from headrace.wire.batch_errors import BatchTooLarge
from headrace.wire.records import unpack
from headrace.wire.schema import Buffer
from headrace.wire.skim import Steps

T = TypeVar("T")

_THREADS: Final = 2
_TURN_S: Final = 0.002
UNPACK_ON_LOOP_BYTES: Final = 128 << 10
"""Decompressing so much takes 0.1 ms, with gzip 0.5."""
COMPRESS_ON_LOOP_BYTES: Final = 32 << 10
"""Compressing so much takes 0.1 ms, with gzip 0.5, with lz4 at Java's level 1."""

_own_turn: ContextVar[asyncio.Lock | None] = ContextVar("own_turn", default=None)


def one_at_a_time() -> None:
    """From now on the running task and its children unpack one batch at a time between them."""
    _own_turn.set(asyncio.Lock())


class Unpacking:
    """The threads and the part of the loop's time that this work may take."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="unpacking")
        self._room = asyncio.Semaphore(_THREADS)
        self._share = _Share()

    def close(self) -> None:
        """Stops taking work; running work finishes on its own."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextlib.asynccontextmanager
    async def records(self, batch: Buffer, header: BatchHeader, limit_bytes: int) -> AsyncIterator[Buffer]:
        """A batch's records, decompressed, for as long as they are looked at; BatchTooLarge if they take too much."""
        work = partial(unpack, batch, header)
        async with _own_turn.get() or contextlib.nullcontext():
            if header.compression == "none":
                yield work(limit_bytes)
                return
            try:
                small = await self._on_loop(len(batch), limit_bytes, UNPACK_ON_LOOP_BYTES, work)
            except BatchTooLarge:
                async with self._room:
                    yield await self._in_thread(work, limit_bytes)
            else:
                yield small

    async def compressed(self, size_bytes: int, limit_bytes: int, work: Callable[[int], T]) -> T:
        """The result of `work(limit)`, which unpacks a batch and compresses it; BatchTooLarge as above."""
        try:
            return await self._on_loop(size_bytes, limit_bytes, COMPRESS_ON_LOOP_BYTES, work)
        except BatchTooLarge:
            async with self._room:
                return await self._in_thread(work, limit_bytes)

    async def packed(self, size_bytes: int, work: Callable[[], T]) -> T:
        """The result of `work()`, which compresses so many bytes of a batch that is being looked at."""
        if size_bytes <= COMPRESS_ON_LOOP_BYTES:
            await self._share.wait()
            return self._share.spend(work)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def go_over(self, steps: Steps[T], rest: Callable[[], Awaitable[None]] | None = None) -> T:
        """The result of work done in portions, with a pause after each if its caller has gone."""
        while True:
            await self._share.wait()
            try:
                self._share.spend(partial(next, steps))
            except StopIteration as end:
                result: T = end.value
                return result
            if rest is not None:
                await rest()

    async def _on_loop(self, size_bytes: int, limit_bytes: int, on_loop_bytes: int, work: Callable[[int], T]) -> T:
        """The result, if all of it is small; BatchTooLarge if it may not be."""
        if size_bytes > on_loop_bytes:
            raise BatchTooLarge("It is not done on the loop.")
        await self._share.wait()
        return self._share.spend(partial(work, min(limit_bytes, on_loop_bytes)))

    async def _in_thread(self, work: Callable[[int], T], limit_bytes: int) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, limit_bytes)


class _Share:
    """The milliseconds of each turn of the loop that go into this work."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._line = asyncio.Lock()
        self._renewed = asyncio.Event()

    async def wait(self) -> None:
        """Until it is the caller's turn, which has time left."""
        if self._spent_s < _TURN_S and not self._line.locked():
            return
        async with self._line:
            while self._spent_s >= _TURN_S:
                await self._renewed.wait()

    def spend(self, work: Callable[[], T]) -> T:
        """Does something now, and counts the time that it takes."""
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            if not self._spent_s:
                self._renewed.clear()
                asyncio.get_running_loop().call_soon(self._renew)
            self._spent_s += time.perf_counter() - began_s

    def _renew(self) -> None:
        """The loop's next turn."""
        self._spent_s = 0.0
        self._renewed.set()
