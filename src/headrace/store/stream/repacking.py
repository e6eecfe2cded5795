"""Frees the memory of removed entries: copies the stream and replaces it with the copy.

Redis keeps about 100 entries in a block and frees it only when all of them are gone, so a stream with 3% of its entries
left may take 70% of its former memory. A copy has full blocks. It is made in small steps with the same ids, while
others read and write. One short script then moves recent entries, the groups with their consumers, positions and
pending entries, and the counters, and renames the copy. Clients notice nothing, even those blocked in XREAD or
XREADGROUP. Only the consumers' idle times in XINFO CONSUMERS restart.

Entries are only ever added at the end, so an unexpected length means that somebody removed some: then the copy is
discarded, as it is if another server answers meanwhile. A copy left behind by a killed process expires.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from headrace.store.redis.errors import StoreError
from headrace.store.redis.link import Argument
from headrace.store.redis.route import Route
from headrace.store.redis.scripts import Scripts
from headrace.store.stream.ids import START, StreamId, parse_id
from headrace.store.stream.walk import Pace, portions, stored_bytes

MOST_PENDING = 1_000
"""A script of a few milliseconds. With more than these a stream is left as it is until some are acknowledged."""
_MOST_MOVED = 256
_MOST_ROUNDS = 20
_MOST_COPIES = 3
_COPY_EXPIRES_MS = 600_000
_MAKING = "headrace:making"
_TOO_MANY_PENDING = f"more than {MOST_PENDING} entries are pending"


class _Abandoned(Exception):
    """The copy is of no use, and another would be of none: the message says why."""


class _Changed(Exception):
    """Entries were removed from the stream, or the copy, while it was made."""


class _Missing(Exception):
    """Entries are pending that are not in the stream any more."""

    def __init__(self, ids: list[StreamId]) -> None:
        self.ids = ids


class Repacked(NamedTuple):
    """The result."""

    is_done: bool
    why_not: str = ""


class Repacking:
    """The repacking of one stream."""

    def __init__(self, link: Route, reads: Route, scripts: Scripts, key: str, pace: Pace) -> None:
        self._link = link
        self._reads = reads
        self._scripts = scripts
        self._key = key
        self._pace = pace
        self._timeline = link.timeline

    async def run(self) -> Repacked:
        """Replaces the stream by a copy of itself."""
        if await self._count_pending() > MOST_PENDING:
            return Repacked(False, _TOO_MANY_PENDING)
        stand_ins: list[StreamId] = []
        for _ in range(_MOST_COPIES):
            copy = _Copy(f"{self._key}:copy:{secrets.token_hex(4)}", stand_ins)
            try:
                await self._make(copy)
                return Repacked(True)
            except _Missing as missing:
                stand_ins = sorted({*stand_ins, *missing.ids})
            except _Changed:
                continue
            except _Abandoned as abandoned:
                return Repacked(False, str(abandoned))
            finally:
                with contextlib.suppress(StoreError):
                    await self._link.call("UNLINK", copy.key)
        return Repacked(False, "entries were removed meanwhile")

    async def _count_pending(self) -> int:
        groups = await self._link.call("XINFO", "GROUPS", self._key)
        return sum(group[group.index(b"pending") + 1] for group in groups)

    async def _make(self, copy: _Copy) -> None:
        await self._link.transaction(
            ("XGROUP", "CREATE", copy.key, _MAKING, "$", "MKSTREAM"),
            ("XGROUP", "DESTROY", copy.key, _MAKING),
            ("PEXPIRE", copy.key, _COPY_EXPIRES_MS),
        )
        await self._fill(copy, self._pace)
        hurried = Pace(entries=self._pace.entries, size_bytes=self._pace.size_bytes, rest_s=0.0, sleep=self._pace.sleep)
        for _ in range(_MOST_ROUNDS):
            if await self._swap(copy):
                return
            await self._fill(copy, hurried)
        raise _Abandoned("entries arrived faster than they could be copied")

    async def _fill(self, copy: _Copy, pace: Pace) -> None:
        async for rows in portions(self._reads, self._key, after=copy.last, upto="+", pace=pace):
            commands = copy.take(rows)
            await self._add(copy, commands)
        await self._add(copy, copy.stand_ins_left())

    async def _add(self, copy: _Copy, commands: list[tuple[Argument, ...]]) -> None:
        if not commands:
            return
        *added, _ = await self._link.pipeline(*commands, ("PEXPIRE", copy.key, _COPY_EXPIRES_MS))
        if None in added:
            raise _Changed

    async def _swap(self, copy: _Copy) -> bool:
        """Whether the copy took the stream's place; not yet, if it is still behind."""
        if self._link.timeline != self._timeline:
            raise _Abandoned("another server answers")
        reply = await self._scripts.run_here(
            "swap",
            [self._key, copy.key],
            [
                copy.last,
                copy.entries,
                copy.entries + len(copy.stood_in),
                min(_MOST_MOVED, max(1, self._pace.size_bytes * copy.entries // max(copy.size_bytes, 1))),
                MOST_PENDING,
                *copy.stood_in,
            ],
        )
        outcome: str = reply[0].decode()
        if outcome == "missing":
            raise _Missing([parse_id(raw) for raw in reply[1:]])
        if outcome == "changed":
            raise _Changed
        if outcome == "pending":
            raise _Abandoned(_TOO_MANY_PENDING)
        return outcome == "done"


class _Copy:
    """The copy made so far."""

    def __init__(self, key: str, stand_ins: Sequence[StreamId]) -> None:
        self.key = key
        self.last = str(START)
        self.entries = 0
        self.size_bytes = 0
        self.stood_in: list[str] = []
        self._waiting = list(stand_ins)

    def take(self, rows: list[tuple[bytes, list[bytes]]]) -> list[tuple[Argument, ...]]:
        """The commands that add entries, and the stand-ins that belong before them."""
        commands: list[tuple[Argument, ...]] = []
        for raw_id, fields in rows:
            if self._waiting:
                commands += self._stand_ins_before(parse_id(raw_id))
            commands.append(("XADD", self.key, "NOMKSTREAM", raw_id, *fields))
            self.size_bytes += stored_bytes(fields)
        self.last = rows[-1][0].decode()
        self.entries += len(rows)
        return commands

    def stand_ins_left(self) -> list[tuple[Argument, ...]]:
        """The stand-ins after the last entry: new entries come after them."""
        waiting, self._waiting = self._waiting, []
        return [self._stand_in(one) for one in waiting]

    def _stand_ins_before(self, entry: StreamId) -> list[tuple[Argument, ...]]:
        commands = []
        while self._waiting and self._waiting[0] <= entry:
            one = self._waiting.pop(0)
            if one < entry:
                commands.append(self._stand_in(one))
        return commands

    def _stand_in(self, one: StreamId) -> tuple[Argument, ...]:
        self.stood_in.append(str(one))
        return ("XADD", self.key, "NOMKSTREAM", str(one), "null", "")
