"""A lease is renewed in the background: soon after the store is back, however long it was away."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from headrace.store.cluster.nodes.keeping import keep
from headrace.store.cluster.nodes.leases import Leases
from headrace.store.cluster.nodes.nodes import Nodes
from headrace.store.redis.errors import StoreAway

LEASE_MS = 60_000


class Away:
    """A store that is away for longer than the first wait for it, as nodes and leases see it."""

    def __init__(self) -> None:
        self.lease_ms = LEASE_MS
        self.without_lease = self
        self.waits = 0
        self.renewed = asyncio.Event()

    async def renew(self) -> None:
        if self.waits < 2:
            raise StoreAway("nobody answers")
        self.renewed.set()

    async def wait_up(self, timeout_s: float) -> None:
        self.waits += 1
        if self.waits < 2:
            raise StoreAway("nobody answers")

    def over(self) -> None:
        """The lease is there."""


async def test_a_lease_is_claimed_at_once_when_the_store_is_back_after_a_long_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that starts then must not be the first to be seen."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def sleep_shortly(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(0)

    away = Away()
    monkeypatch.setattr("headrace.store.cluster.nodes.keeping.asyncio.sleep", sleep_shortly)
    work = asyncio.create_task(keep(cast("Nodes", away), cast("Leases", away)))
    await away.renewed.wait()
    work.cancel()
    assert pauses[0] == LEASE_MS / 1000 / 4
    assert max(pauses[1:3]) < 1
