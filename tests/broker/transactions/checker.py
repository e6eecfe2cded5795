"""A checker in the manner of Jepsen's: producers move values between lists in transactions, a reader looks on.

Each transaction appends one value of its own to every partition and commits an offset with it. Some producers die in
the middle, some ends are sent twice, some arrive while the next transaction is open. What a reader of committed records
finds at any moment is held against what the producers were told. Anomalies are named; none may be there without a bug.

In version 1 a batch that arrives after EndTxn was answered, but before the marker, is part of the transaction that it
came after, as in Kafka: only the marker ends a transaction in a partition. Behind the marker it must be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tests.broker.transactions.producing import PARTITIONS, Logged, Mover, Nodes, until

_REFUSED = (47, 48, 90, 120)
"""A batch that is answered so is not in the log."""
_LATE = b"late "


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
        self.story: list[str] = []
        """What the log has of the values that an anomaly was found with."""

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
        value = b""
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
        await self._send_late_batch(mover, value)

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
            await self._send_late_batch(mover, value)
        return commit

    async def _send_late_batch(self, mover: Mover, value: bytes) -> None:
        """A batch arrives when its transaction has ended, which only version 1 would not notice by its epoch."""
        if mover.version != 1:
            return
        with contextlib.suppress(KeyError, AssertionError, OSError):
            if await mover.append(0, _LATE + value) in (0, *_REFUSED):
                return
        await self._begin(mover)  # it may be in the log: the next batch must not have its sequence

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
        logs = [await self.nodes.batches(partition) for partition in range(PARTITIONS)]
        for value, told in self._told.items():
            for anomaly in self._wrong_with(value, told, [found[value] for found in lists]):
                self._accuse(anomaly, value, logs)
        for value, is_behind in _late(logs[0]):
            own = value.removeprefix(_LATE)
            if is_behind:
                self._accuse("a batch is behind the end of its transaction", own, logs)
            if self._told[own] is False and (lists[0][value] or value in self._read):
                self._accuse("aborted read", own, logs)
            elif bool(lists[0][value]) != bool(lists[0][own]):
                self._accuse("a transaction is torn", own, logs)
        for number in range(movers):
            await self._check_offset(f"mover-{number}", lists)

    def _wrong_with(self, value: bytes, told: bool | None, counts: list[int]) -> Iterator[str]:
        if max(counts) > 1:
            yield "a record is there twice"
        if told is True and set(counts) != {1}:
            yield "a committed record is lost"
        elif told is False and (any(counts) or value in self._read):
            yield "aborted read"
        elif len(set(counts)) > 1:
            yield "a transaction is torn"

    def _accuse(self, anomaly: str, value: bytes, logs: list[list[Logged]]) -> None:
        self.anomalies[anomaly] += 1
        self.story.append(f"{anomaly}: {value!r}, told {self._told[value]}, was read: {value in self._read}")
        for partition, log in enumerate(logs):
            self.story += [f"  {partition}: {one}" for one in _around(log, value)]

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


def _late(log: list[Logged]) -> Iterator[tuple[bytes, bool]]:
    """Late values in the log, and whether the transaction that they came after had ended there before them."""
    last: dict[int, Logged] = {}
    for one in log:
        before = last.get(one.producer_id)
        own = {value.removeprefix(_LATE) for value in before.values} if before is not None else set()
        yield from ((value, value.removeprefix(_LATE) not in own) for value in one.values if value.startswith(_LATE))
        last[one.producer_id] = one


def _around(log: list[Logged], value: bytes) -> list[Logged]:
    """The batches with a value, or late ones of it, and what their producer has around them."""
    places = [one for one in log if value in one.values or _LATE + value in one.values]
    if not places:
        return []
    its = [one for one in log if one.producer_id == places[0].producer_id]
    return its[max(0, its.index(places[0]) - 3) : its.index(places[-1]) + 4]
