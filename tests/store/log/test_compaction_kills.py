"""A compaction that ends anywhere has changed nothing for readers, and the next one goes on."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from headrace.store.log.partition import LogPartition
from headrace.store.redis.link import RedisLink
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.compacted import ALWAYS, NEVER, Pair, compact, compacted_topic, last_of_each, left, put
from tests.store.conftest import OpenStore
from tests.store.produced import same_partition

MOST_STEPS = 200


class Killer:
    """Ends the task that compacts at its n-th command, before or after that was sent."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, at: int, *, is_sent: bool) -> None:
        self.victim: asyncio.Task[Any] | None = None
        self.steps = 0
        self._at, self._is_sent = at, is_sent
        for link in (store.link.link, store.reads.link):
            for name in ("send", "send_chunks"):
                monkeypatch.setattr(link, name, self._wrapped(getattr(RedisLink, name), link))

    def _wrapped(self, send: Any, link: RedisLink) -> Any:
        def sends(*arguments: Any) -> Any:
            if self.victim is None or asyncio.current_task() is not self.victim:
                return send(link, *arguments)
            self.steps += 1
            if self.steps != self._at:
                return send(link, *arguments)
            if self._is_sent:
                send(link, *arguments).add_done_callback(lambda reply: reply.exception())
            raise asyncio.CancelledError

        return sends


async def fill(partition: LogPartition, rounds: int) -> list[tuple[int, Pair]]:
    written: list[tuple[int, Pair]] = []
    for n in range(rounds):
        pairs: list[Pair] = [(b"%d" % (n * i % 5), b"%d-%d" % (n, i)) for i in range(4)]
        base = (await put(partition, *pairs)).base_offset
        written += [(base + at, pair) for at, pair in enumerate(pairs)]
    return written


@pytest.mark.parametrize("is_sent", [False, True], ids=["before it is sent", "after it was sent"])
async def test_a_pass_that_is_killed_at_any_command_loses_nothing(
    open_store: OpenStore, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    store = await open_store(index_interval_bytes=1 << 10)
    orders = await compacted_topic(store)
    written = await fill(orders, 6)
    await compact(orders, clock)
    at, is_done = count(1), False
    while not is_done:
        written += [(offset, pair) for offset, pair in await fill(orders, 4)]
        await orders.cleaner.run_if_due(NEVER, 2_000)
        clock.advance(2_000)
        await store.nodes.renew()
        await orders.confirm()
        with monkeypatch.context() as patch:
            killer = Killer(store, patch, next(at), is_sent=is_sent)
            killer.victim = asyncio.create_task(orders.cleaner.run_if_due(ALWAYS, 2_000))
            try:
                await killer.victim
                is_done = True
            except asyncio.CancelledError:
                assert killer.steps < MOST_STEPS
        await assert_reads(orders, written)
    reopened = await same_partition(await open_store(), orders)
    await assert_reads(reopened, written)
    await compact(orders, clock)
    border = orders.clean.end
    assert border == orders.last_base
    expected = [(offset, *pair) for offset, pair in last_of_each(written, border)]
    assert [(r.offset, r.key, r.value) for r in await left(orders)] == expected
    log, copies = orders.keys.log, orders.keys.clean
    assert (await orders.link.call("XRANGE", log, "-", "+", "COUNT", 1))[0][0] == b"%d-1" % border
    assert await orders.link.call("EXISTS", copies.new_log, copies.new_points) == 0


async def assert_reads(partition: LogPartition, written: list[tuple[int, Pair]]) -> None:
    """Every record is where it was written, and the last one of each key is there."""
    found = [(r.offset, (r.key, r.value)) for r in await left(partition)]
    at = dict(written)
    assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    assert all(at[offset] == pair for offset, pair in found)
    assert dict(pair for _, pair in found) == dict(pair for _, pair in written)
    border = partition.clean.end
    assert [one for one in found if one[0] >= border] == [one for one in written if one[0] >= border]
