"""Neighbours: a dead process refuses connections; silence, a closed connection and a wrong address say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from headrace.store.store import Store
from tests.broker_process import free_port
from tests.store.conftest import OpenStore
from tests.store.produced import until

LEASE_MS = 60_000
"""Whatever happens in a test does not happen because a lease ran out."""


class Listening:
    """What a node's port is to its neighbours."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[asyncio.StreamWriter] = []
        self.accepted = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.lines.append(writer)

    def hang_up(self) -> None:
        """Closes the connections, and goes on listening."""
        lines, self.lines = self.lines, []
        for line in lines:
            line.close()

    def die(self) -> None:
        """What the kernel does for a process that was killed."""
        if self._server is not None:
            self._server.close()
        self.hang_up()


@asynccontextmanager
async def two_nodes(open_store: OpenStore) -> AsyncIterator[tuple[Store, Store, Listening]]:
    port = Listening(free_port())
    await port.open()
    first = await open_store(node_lease_ms=LEASE_MS)
    second = await open_store(port=port.port, node_lease_ms=LEASE_MS)
    await until(lambda: ids(first) == [0, 1])
    await first.serve()
    await until(lambda: port.accepted == 1)
    yield first, second, port
    port.die()


def ids(store: Store) -> list[int]:
    return [node.id for node in store.nodes.live]


async def test_a_node_whose_port_refuses_is_deposed_at_once_and_others_hear_of_it(open_store: OpenStore) -> None:
    async with two_nodes(open_store) as (first, _, port):
        third = await open_store(node_lease_ms=LEASE_MS)
        await until(lambda: ids(third) == [0, 1, 2])
        port.die()
        await until(lambda: ids(first) == ids(third) == [0, 2])


async def test_a_dead_node_that_said_more_of_itself_since_it_is_watched_is_deposed_all_the_same(
    open_store: OpenStore,
) -> None:
    async with two_nodes(open_store) as (first, second, port):
        row = next(one.row for one in first.nodes.seen if one.row.node.id == second.nodes.me.id)
        await second.leases.claim(msgspec.structs.replace(row, restored_on="a server"))
        port.die()
        await until(lambda: ids(first) == [0])


async def test_a_connection_that_is_closed_by_a_node_that_lives_is_made_again(open_store: OpenStore) -> None:
    async with two_nodes(open_store) as (first, _, port):
        for number in range(2, 4):
            port.hang_up()
            await until(lambda number=number: port.accepted >= number)  # type: ignore[misc]
        assert ids(first) == [0, 1]


async def test_a_node_that_claims_its_lease_again_is_not_deposed_twice(open_store: OpenStore) -> None:
    """Its port refuses, and yet it lives: a firewall, or an address that leads elsewhere."""
    async with two_nodes(open_store) as (first, second, port):
        port.die()
        await until(lambda: ids(first) == [0])
        await second.nodes.renew()
        await until(lambda: ids(first) == [0, 1])
        assert second.nodes._token in first.neighbours._deposed
        first.neighbours.follow()
        assert not first.neighbours._watches


async def test_a_node_that_could_never_be_reached_is_left_alone(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.cluster.nodes.neighbours._FIRST_PAUSE_S", 0.001)
    attempts = 0

    async def refuse(_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError

    monkeypatch.setattr("headrace.store.cluster.nodes.neighbours._connect", refuse)
    first = await open_store(node_lease_ms=LEASE_MS)
    await open_store(node_lease_ms=LEASE_MS)
    await until(lambda: ids(first) == [0, 1])
    await first.serve()
    await until(lambda: attempts > 3)
    assert ids(first) == [0, 1]


async def test_each_node_watches_the_next_three(open_store: OpenStore) -> None:
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(6)]
    for store in stores:
        await store.nodes.refresh()
    watched = [[row.node.id for row in store.neighbours._next()] for store in stores]
    assert watched == [[1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 0], [5, 0, 1], [0, 1, 2]]
