"""Reads a whole stream in small steps with pauses in between.

A step is bounded in entries and, judging by the steps before, in bytes: neither Redis nor the event loop is blocked for
longer than one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from headrace.store.redis.route import Route

_FIRST_COUNT = 16
_GROWTH = 4


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done at once, and how long the rest after it is."""

    entries: int = 256
    size_bytes: int = 256 << 10
    rest_s: float = 0.002
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def rest(self) -> None:
        """Lets the others have their turn."""
        await self.sleep(self.rest_s)


def stored_bytes(fields: list[bytes]) -> int:
    """The approximate size of an entry in a stream without holes: repeated field names are stored once."""
    values = fields[1::2]
    return sum(map(len, values)) + 4 * len(values) + 8


async def portions(
    reads: Route, key: str, *, after: str, upto: str, pace: Pace
) -> AsyncIterator[list[tuple[bytes, list[bytes]]]]:
    """The entries behind one id up to another, in portions; whoever takes one does its work before the rest."""
    async for rows in _walk(reads, "XRANGE", key, f"({after}", upto, pace):
        yield rows


async def portions_back(reads: Route, key: str, *, pace: Pace) -> AsyncIterator[list[tuple[bytes, list[bytes]]]]:
    """All entries from the newest one back, in portions."""
    async for rows in _walk(reads, "XREVRANGE", key, "+", "-", pace):
        yield rows


async def _walk(
    reads: Route, command: str, key: str, begin: str, end: str, pace: Pace
) -> AsyncIterator[list[tuple[bytes, list[bytes]]]]:
    count = min(_FIRST_COUNT, pace.entries)
    while True:
        rows: list[Any] = await reads.call(command, key, begin, end, "COUNT", count)
        if rows:
            yield rows
        if len(rows) < count:
            return
        begin = f"({rows[-1][0].decode()}"
        size_bytes = sum(stored_bytes(fields) for _, fields in rows)
        count = min(count * _GROWTH, pace.entries, max(1, count * pace.size_bytes // max(size_bytes, 1)))
        await pace.rest()
