"""Random histories against a model: what stays is exactly what Kafka's rules say, and groups are as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.stream.ids import StreamId
from tests.store.compacting import Bench, bench_on, compaction_policy
from tests.store.servers import Valkey

POLICY = compaction_policy(dirty_ratio=0.0, delete_retention_ms=10)
KEYS = st.sampled_from("abcde")
STEP = st.one_of(
    st.tuples(st.just("write"), st.one_of(KEYS, st.none()), st.booleans()),
    st.tuples(st.just("write"), KEYS, st.just(True)),
    st.tuples(st.just("deliver"), st.integers(1, 4), st.sampled_from(["one", "two"])),
    st.tuples(st.just("acknowledge"), st.integers(0, 3), st.just(None)),
    st.tuples(st.just("wait"), st.integers(1, 15), st.just(None)),
    st.tuples(st.just("compact"), st.none(), st.lists(KEYS, max_size=2)),
    st.tuples(st.just("compact"), st.integers(0, 12), st.lists(KEYS, max_size=2)),
    st.tuples(st.just("repack"), st.one_of(st.none(), st.integers(0, 6)), st.lists(KEYS, max_size=2)),
)
_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    server = Valkey(appendonly=False).start()
    yield server
    server.end()


class Killed(Exception):
    """The process that compacts is gone."""


class Model:
    """The entries that should be there, and what compactions know."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str | None, bool]] = {}
        self.passed: list[tuple[int, int]] = []
        self.leftovers: set[int] = set()

    def compacted(self, now_ms: int, upto: int, pending: set[int]) -> tuple[set[int], set[int]]:
        """What a whole compaction leaves, and of that, what it could not remove yet."""
        last = {key: at for at, (key, _) in sorted(self.entries.items()) if at <= upto and key is not None}
        horizon = max([at for ms, at in self.passed if ms <= now_ms - POLICY.delete_retention_ms], default=0)
        horizon = min([horizon, *self.leftovers])
        dead = set()
        for at, (key, has_value) in self.entries.items():
            replaced = at in self.leftovers or (key is not None and at <= upto and last[key] != at)
            expired = key is not None and not has_value and at <= horizon
            if (replaced or expired) and at != max(at for at in self.entries if at <= upto):
                dead.add(at)
        kept = dead & pending
        return set(self.entries) - dead | kept, kept


class History:
    """Plays a history on a real stream and on the model."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.model = Model()
        self.next = 1

    async def write(self, key: str | None, has_value: bool) -> None:
        at, self.next = self.next, self.next + 1
        has_value = has_value or key is None
        fields = ({"key": key} if key is not None else {}) | ({"value": f"v{at}"} if has_value else {})
        await self.bench.add(f"{at}-0", **fields)
        self.model.entries[at] = (key, has_value)

    async def deliver(self, number: int, consumer: str) -> None:
        stream = self.bench.stream
        await self.bench.link.call("XREADGROUP", "GROUP", "g", consumer, "COUNT", number, "STREAMS", stream, ">")

    async def acknowledge(self, at: int) -> None:
        if ids := sorted(await self.pending()):
            await self.bench.link.call("XACK", self.bench.stream, "g", f"{ids[at % len(ids)]}-0")

    async def pending(self) -> set[int]:
        rows = await self.bench.link.call("XPENDING", self.bench.stream, "g", "-", "+", 1000)
        return {int(row[0].split(b"-")[0]) for row in rows}

    async def wait(self, ms: int) -> None:
        self.bench.clock.now_ms += ms

    async def compact(self, kill_at: int | None, writes: list[str]) -> None:
        upto, groups, now_ms = self.next - 1, await self.bench.groups(), self.bench.clock.now_ms
        stays, kept = self.model.compacted(now_ms, upto, await self.pending())
        interruption = Interruption(self, kill_at, writes)
        try:
            await self.bench.compaction(entries=3, on_rest=interruption).run(POLICY, StreamId(upto, 0))
        except Killed:
            await self.revive()
            left = await self.ids()
            assert stays <= left <= set(self.model.entries)
            self.model.entries = {at: entry for at, entry in self.model.entries.items() if at in left}
        else:
            self.model.entries = {at: e for at, e in self.model.entries.items() if at in stays or at > upto}
            self.model.passed.append((now_ms, upto))
            self.model.leftovers = kept
        await self.check(groups)

    async def repack(self, kill_at: int | None, writes: list[str]) -> None:
        groups = await self.bench.groups()
        try:
            await self.bench.repacking(entries=3, on_rest=Interruption(self, kill_at, writes)).run()
        except Killed:
            await self.revive()
        await self.check(groups)

    async def revive(self) -> None:
        await self.bench.link.wait_up(5)
        await self.bench.reads.wait_up(5)

    async def ids(self) -> set[int]:
        return {int(one.split("-")[0]) for one in await self.bench.ids()}

    async def check(self, groups: list[Any]) -> None:
        rows = await self.bench.rows()
        assert [entry_id for entry_id, _ in rows] == [f"{at}-0" for at in sorted(self.model.entries)]
        for entry_id, fields in rows:
            key, has_value = self.model.entries[int(entry_id[:-2])]
            expected = [b"key", key.encode()] if key is not None else []
            assert fields == expected + ([b"value", b"v" + entry_id[:-2].encode()] if has_value else [])
        assert await self.bench.groups() == groups
        assert (await self.bench.counters())[b"last-generated-id"] == f"{self.next - 1}-0".encode()


class Interruption:
    """What happens in the rests of a compaction: others write, and it may be killed."""

    def __init__(self, history: History, kill_at: int | None, writes: list[str]) -> None:
        self.history = history
        self.kill_at = kill_at
        self.writes = list(writes)
        self.rests = 0

    async def __call__(self, _: float) -> None:
        if self.writes:
            await self.history.write(self.writes.pop(), True)
        if self.rests == self.kill_at:
            self.history.bench.link.drop("killed")
            self.history.bench.reads.drop("killed")
            raise Killed
        self.rests += 1


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=8, max_size=45))
def test_every_history_leaves_what_the_rules_say(server: Valkey, steps: list[tuple[str, Any, Any]]) -> None:
    async def play() -> None:
        tag = f"headrace:default:{{orders:{next(_numbers)}}}"
        async with bench_on(server, f"{tag}:stream", f"{tag}:meta") as bench:
            await bench.link.call("XGROUP", "CREATE", bench.stream, "g", "0", "MKSTREAM")
            history = History(bench)
            for name, *arguments in [("write", "a", True), *steps, ("compact", None, []), ("repack", None, [])]:
                used = [one for one in arguments if one is not None or name in ("write", "compact", "repack")]
                await getattr(history, name)(*used)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())
