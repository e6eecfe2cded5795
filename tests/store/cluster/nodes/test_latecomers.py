"""A node that starts beside servers that may have lost something: those who have it come first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import new_servers, until
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Nothing expires or is renewed by itself while a test runs: the clock is the test's."""

Start = Callable[[int], Awaitable[Store]]


@pytest.fixture
async def start(valkey: Valkey, clock: MovableClock) -> AsyncIterator[Start]:
    """Nodes that do not serve yet."""
    started: list[Store] = []

    async def start_one(node_id: int) -> Store:
        options = StoreOptions(node_lease_ms=LEASE_MS)
        store = Store(parse_address(valkey.url), node_at(node_id, "127.0.0.1", 9092 + node_id), options, clock)
        await store.start(serves=False)
        started.append(store)
        return store

    yield start_one
    for store in started:
        await store.close()


def ids(store: Store) -> list[int]:
    return [node.id for node in store.nodes.live]


async def looks_again(store: Store) -> None:
    """A look that began after this was called has ended."""
    looks = store.nodes.seen
    await until(lambda: store.nodes.seen is not looks)
    looks = store.nodes.seen
    await until(lambda: store.nodes.seen is not looks)


async def go_back(valkey: Valkey, checkpoint: Path, *stores: Store) -> None:
    """The older store is there, and nobody's lease is."""
    async with new_servers(*stores):
        valkey.go_back_to(checkpoint)
    valkey.ask("DEL", *(stores[0].keys.node(number) for number in range(2)))


async def test_who_starts_beside_an_older_store_lets_those_restore_it_who_have_what_it_lost(
    valkey: Valkey, open_store: OpenStore, start: Start
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == [0, 1])
    await first.leases.close()
    await go_back(valkey, valkey.checkpoint(), first, second)
    await second.leases.wait_up(20)
    is_restored = [False]
    second.nodes.restored.checks.append(lambda: is_restored[0])
    again = await start(0)
    assert ids(again) == [1]
    serving = asyncio.create_task(again.serve())
    await second.nodes.renew()
    await looks_again(again)
    assert (ids(again), serving.done()) == ([1], False)
    is_restored[0] = True
    await second.nodes.renew()
    await serving
    assert ids(again) == [0, 1]


async def test_the_dead_are_waited_for_by_the_first_that_starts_and_for_no_longer_than_a_lease(
    valkey: Valkey, open_store: OpenStore, start: Start, clock: MovableClock
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == [0, 1])
    for store in (first, second):
        await store.leases.close()
    await go_back(valkey, valkey.checkpoint(), first, second)
    again = await start(0)
    serving = asyncio.create_task(again.serve())
    await looks_again(again)
    assert (ids(again), serving.done()) == ([1], False)
    clock.advance(LEASE_MS)
    await again.nodes.renew()
    await serving
    assert ids(again) == [0]
    third = await start(2)
    assert ids(third) == [0]
    await third.serve()
    assert ids(third) == [0, 2]


async def test_nobody_is_waited_for_on_servers_that_are_as_they_were(
    open_store: OpenStore, start: Start, valkey: Valkey
) -> None:
    first, second = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    await until(lambda: ids(first) == [0, 1])
    for store in (first, second):
        await store.leases.close()
    valkey.ask("DEL", *(first.keys.node(number) for number in range(2)))
    again = await start(0)
    assert ids(again) == [0]
    await again.serve()
    assert ids(again) == [0]
