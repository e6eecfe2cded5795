"""Row groups as encoded batches, kept for whoever reads them next, within a bound of bytes.

Consumers read about a megabyte at a time of a row group that has several, and several consumers may follow one
another, so a piece is made once: whoever wants it meanwhile waits for the same work. The least used go first.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor

import msgspec

from headrace.lake.cold_files import OpenFile, RowGroup
from headrace.lake.encode import EncodedBatch

KEPT_BYTES = 96 * 1024 * 1024
"""Of encoded batches. Four consumers at four places, each with what it reads and what is prepared, take 60 MB."""

_Key = tuple[str, int, int]


class Piece(msgspec.Struct, frozen=True):
    """The batches of one row group, or of its rows below an offset."""

    batches: Sequence[EncodedBatch]
    size_bytes: int

    def from_offset(self, offset: int) -> Sequence[EncodedBatch]:
        """The batches from the one that holds an offset, or the next behind it."""
        return self.batches[bisect.bisect_left(self.batches, offset, key=lambda batch: batch.last) :]


class Pieces:
    """The pieces in memory, and those being made."""

    def __init__(self, executor: Executor, kept_bytes: int = KEPT_BYTES) -> None:
        self._executor, self._most_bytes = executor, kept_bytes
        self._kept: OrderedDict[_Key, Piece] = OrderedDict()
        self._making: dict[_Key, asyncio.Task[Piece]] = {}
        self.size_bytes = 0

    async def get(self, opened: OpenFile, group: RowGroup, stop: int) -> Piece:
        """The rows of a row group below `stop`. Who stops waiting does not stop the work."""
        key = (opened.name, group.index, min(stop, group.last + 1))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._making:
            making = self._making[key] = asyncio.create_task(self._make(key, opened, group))
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(self._making[key])

    async def _make(self, key: _Key, opened: OpenFile, group: RowGroup) -> Piece:
        loop = asyncio.get_running_loop()
        batches = await loop.run_in_executor(self._executor, opened.encode, group, key[2])
        return Piece(batches, sum(len(batch.content) for batch in batches))

    def _made(self, key: _Key, done: asyncio.Task[Piece]) -> None:
        del self._making[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._kept[key] = done.result()
        self.size_bytes += done.result().size_bytes
        # The newest stays, however large: its reader comes back for the rest of it.
        while self.size_bytes > self._most_bytes and len(self._kept) > 1:
            _, given_up = self._kept.popitem(last=False)
            self.size_bytes -= given_up.size_bytes
