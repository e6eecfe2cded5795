"""Streams to compact, and what must not change by it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from headrace.store.options import StoreOptions
from headrace.store.partition.old_records import CompactionPolicy
from headrace.store.redis.address import parse_address
from headrace.store.redis.route import Route
from headrace.store.redis.scripts import Scripts
from headrace.store.redis.topology import open_topology
from headrace.store.stream.compacting.compaction import Compaction
from headrace.store.stream.compacting.scripts import COMPACTION_SOURCES
from headrace.store.stream.repacking import Repacking
from headrace.store.stream.walk import Pace
from headrace.store.topic_configs.policy import policy_of
from tests.store.servers import Valkey

STREAM, META = "headrace:default:{orders:0}:stream", "headrace:default:{orders:0}:meta"
VOLATILE = {b"idle", b"inactive", b"lag"}


def compaction_policy(**changes: Any) -> CompactionPolicy:
    """That of a topic without configs, but for some of it."""
    return msgspec.structs.replace(policy_of({}).compaction, **changes)


class Clock:
    """A time that a test sets."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Bench:
    """A stream, and the means to compact it step by step."""

    def __init__(self, server: Valkey, link: Route, reads: Route, stream: str, meta: str) -> None:
        self.server = server
        self.link, self.reads = link, reads
        self.stream, self.meta = stream, meta
        self.clock = Clock()

    def compaction(
        self,
        *,
        entries: int = 256,
        on_rest: Callable[[float], Awaitable[object]] | None = None,
        skips_foreign: bool = False,
    ) -> Compaction:
        return Compaction(
            self.link,
            self.reads,
            stream=self.stream,
            meta=self.meta,
            now_ms=self.clock,
            skips_foreign=skips_foreign,
            pace=pace(entries, on_rest),
        )

    def repacking(
        self, *, entries: int = 256, on_rest: Callable[[float], Awaitable[object]] | None = None
    ) -> Repacking:
        return Repacking(
            self.link, self.reads, Scripts(self.link, COMPACTION_SOURCES), self.stream, pace(entries, on_rest)
        )

    async def add(self, entry_id: str, **fields: str) -> None:
        """XADD; the id may be `*`."""
        words = [word for name, value in fields.items() for word in (name, value)]
        await self.link.call("XADD", self.stream, entry_id, *words)

    async def rows(self) -> list[tuple[str, list[bytes]]]:
        found = await self.reads.call("XRANGE", self.stream, "-", "+")
        return [(raw.decode(), fields) for raw, fields in found]

    async def ids(self) -> list[str]:
        return [entry_id for entry_id, _ in await self.rows()]

    async def groups(self) -> list[Any]:
        """Groups, consumers and pending entries, but for times that pass by themselves."""
        states: list[Any] = []
        for row in await self.link.call("XINFO", "GROUPS", self.stream):
            group = _steady(row)
            consumers = await self.link.call("XINFO", "CONSUMERS", self.stream, group[b"name"])
            pending = await self.link.call("XPENDING", self.stream, group[b"name"], "-", "+", 10_000)
            states.append((group, [_steady(one) for one in consumers], [(a, b, d) for a, b, _, d in pending]))
        return states

    async def counters(self) -> dict[bytes, Any]:
        info = _steady(await self.link.call("XINFO", "STREAM", self.stream))
        return {name: info.get(name) for name in (b"last-generated-id", b"entries-added", b"max-deleted-entry-id")}

    async def memory_bytes(self, key: str = "") -> int:
        used: int = await self.link.call("MEMORY", "USAGE", key or self.stream, "SAMPLES", 0)
        return used


@contextlib.asynccontextmanager
async def bench_on(server: Valkey, stream: str = STREAM, meta: str = META) -> AsyncIterator[Bench]:
    """Two ways to the stream, as the store has them."""
    topology = open_topology(parse_address(server.url), StoreOptions())
    await topology.start()
    slot = topology.slot_of(stream)
    await slot.link.call("HSET", meta, "format", "stream")
    try:
        yield Bench(server, slot.link, slot.reads, stream, meta)
    finally:
        await topology.close()


def pace(entries: int, on_rest: Callable[[float], Awaitable[object]] | None) -> Pace:
    if on_rest is None:
        return Pace(entries=entries, rest_s=0.0)
    return Pace(entries=entries, rest_s=0.0, sleep=on_rest)


def _steady(row: list[Any]) -> dict[bytes, Any]:
    facts = {row[at]: row[at + 1] for at in range(0, len(row), 2)}
    return {name: value for name, value in facts.items() if name not in VOLATILE}
