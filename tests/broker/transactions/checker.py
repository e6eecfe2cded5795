"""A checker in the manner of Jepsen's: producers move values between lists in transactions, a reader looks on.

Each transaction appends one value of its own to every partition and commits an offset with it. Some producers die in
the middle, some ends are sent twice, some arrive while the next transaction is open. What a reader of committed records
finds at any moment is held against what the producers were told. Anomalies are named; none may be there without a bug.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.broker.transactions.producing import PARTITIONS, Mover, Nodes, until

_FENCED = (47, 48, 90, 120)


class Checker:
    """One run."""

    def __init__(self, nodes: Nodes, seed: int, patience_s: float = 20) -> None:
        self.nodes = nodes
        self._patience_s = patience_s
        self.anomalies: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._told: dict[bytes, bool | None] = {}
        """Value -> whether its transaction was committed; None if nobody knows, since the answer was lost."""
        self._late_ends: dict[str, tuple[int, int]] = {}
        """Mover -> who it was when its last transaction ended."""
        self._seen: list[int] = [0] * PARTITIONS
        self._read: set[bytes] = set()
        """What a reader was given while the producers were at it."""

    async def run(self, movers: int, rounds: int, disturb: Callable[[], Awaitable[None]] | None = None) -> Counter[str]:
        """All producers side by side, a reader, and whatever disturbs them."""
        await self.nodes.create()
        reading = asyncio.create_task(self._read_on())
        work = [self._move(number, rounds) for number in range(movers)]
        await asyncio.gather(*work, *([disturb()] if disturb is not None else []))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await self._check_end(movers)
        return self.anomalies

    # -- producers ----------------------------------------------------------------------------------------------

    async def _move(self, number: int, rounds: int) -> None:
        mover = Mover(self.nodes, f"mover-{number}", version=1 + number % 2)
        await self._begin(mover)
        for at in range(rounds):
            value = b"%d-%d" % (number, at)
            commit = self._random.random() < 0.6
            self._told[value] = False  # until somebody asks for its commit
            try:
                told = await self._transact(mover, value, commit, at)
            except (KeyError, AssertionError, OSError):
                told = None  # its node died
            self._told[value] = told if told is not None or self._told[value] is None else False
            if told is None:
                await self._begin(mover)
        with contextlib.suppress(KeyError, AssertionError, OSError):
            await self._send_late_batch(mover)

    async def _transact(self, mover: Mover, value: bytes, commit: bool, at: int) -> bool | None:
        """Whether it was committed; None if an error came between."""
        for partition in range(PARTITIONS):
            if await mover.send(partition, value):
                return None
            await self._send_late_end(mover)
        if await mover.send_offsets(mover.name, at) or self._random.random() < 0.1:
            return None  # the last is a producer that dies
        if commit:
            self._told[value] = None
        before = mover.producer
        if await mover.end(commit=commit):
            return None
        if mover.version == 2 and self._random.random() < 0.3:
            if await mover.end(commit=commit, producer=before) not in (0, 15, 16, 51):
                self.anomalies["the same end is answered in another way"] += 1
            self._late_ends[mover.name] = before
        if self._random.random() < 0.3:
            await self._send_late_batch(mover)
        return commit

    async def _send_late_batch(self, mover: Mover) -> None:
        """A batch arrives when its transaction has ended, which only version 1 would not notice by its epoch."""
        if mover.version == 1 and not await mover.append(0, b"late"):
            self._told[b"late"] = False

    async def _send_late_end(self, mover: Mover) -> None:
        """The end of the transaction before arrives again; in version 1 nothing could tell."""
        before = self._late_ends.pop(mover.name, None)
        if before is not None and await mover.end(commit=self._random.random() < 0.5, producer=before) == 0:
            self.anomalies["an end counts for the next transaction"] += 1

    async def _begin(self, mover: Mover) -> None:
        async def begins() -> bool:
            with contextlib.suppress(KeyError, AssertionError, OSError):
                return await mover.init() == 0
            return False

        await until(begins, 60)

    # -- what a reader sees -------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        while True:
            with contextlib.suppress(KeyError, AssertionError, OSError):
                for partition in range(PARTITIONS):
                    await self._look(partition)
            await asyncio.sleep(0.01)

    async def _look(self, partition: int) -> None:
        stable = await self.nodes.end(partition, 1)
        if stable < self._seen[partition]:
            self.anomalies["the last stable offset went back"] += 1
        self._seen[partition] = max(stable, self._seen[partition])
        self._read.update(await self.nodes.read(partition))

    async def _check_end(self, movers: int) -> None:
        try:
            await until(self.nodes.is_stable, self._patience_s)
        except TimeoutError:
            self.anomalies["a transaction hangs"] += 1
        for partition in range(PARTITIONS):
            await self._look(partition)
        lists = [Counter(await self.nodes.read(partition)) for partition in range(PARTITIONS)]
        for value, told in self._told.items():
            counts = {found[value] for found in lists} if value != b"late" else {lists[0][value]}
            if max(counts) > 1:
                self.anomalies["a record is there twice"] += 1
            if told is True and counts != {1}:
                self.anomalies["a committed record is lost"] += 1
            elif told is False and (counts != {0} or value in self._read):
                self.anomalies["aborted read"] += 1
            elif len(counts) > 1:
                self.anomalies["a transaction is torn"] += 1
        for number in range(movers):
            await self._check_offset(f"mover-{number}", lists)

    async def _check_offset(self, name: str, lists: list[Counter[bytes]]) -> None:
        """The offset is that of the last transaction whose records are there."""
        number = name.split("-")[1]
        moved = [int(value.split(b"-")[1]) for value in lists[1] if value.startswith(number.encode() + b"-")]
        error, offset = await self._settled(name)
        if error:
            self.anomalies["an offset is pending for ever"] += 1
        elif offset != max(moved, default=-1):
            self.anomalies["offset and records differ"] += 1

    async def _settled(self, name: str) -> tuple[int, int]:
        found: Any = (88, -1)
        for _ in range(500):
            with contextlib.suppress(KeyError, AssertionError, IndexError):
                found = await self.nodes.committed(name)
                if not found[0]:
                    break
            await asyncio.sleep(0.02)
        error, offset = found
        return error, offset
