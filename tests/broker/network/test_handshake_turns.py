"""Turns for TLS handshakes: addresses take turns, and whoever has gone costs none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.broker.network.handshake_turns import HandshakeTurns

BURST = 2


@pytest.fixture
async def turns() -> AsyncIterator[HandshakeTurns]:
    found = HandshakeTurns(asyncio.get_running_loop(), 200)
    for _ in range(BURST):
        await found.wait("burst")
    yield found
    found.close()


async def queued(turns: HandshakeTurns, host: str, number: int, order: list[str]) -> list[asyncio.Task[None]]:
    async def wait() -> None:
        await turns.wait(host)
        order.append(host)

    tasks = [asyncio.create_task(wait()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_a_queue_of_one_address_does_not_make_another_wait(turns: HandshakeTurns) -> None:
    order: list[str] = []
    crowd = await queued(turns, "crowd", 50, order)
    await asyncio.gather(*await queued(turns, "somebody", 1, order))
    assert order.index("somebody") < 25
    await asyncio.gather(*crowd)
    assert order.count("crowd") == 50


async def test_who_has_gone_costs_no_turn() -> None:
    """At one turn a second a thousand that went would be waited for until the test ends."""
    turns = HandshakeTurns(asyncio.get_running_loop(), 1)
    for _ in range(BURST + 1):
        await turns.wait("burst")
    order: list[str] = []
    for task in await queued(turns, "crowd", 1_000, order):
        task.cancel()
    await asyncio.gather(*await queued(turns, "crowd", 1, order))
    assert order == ["crowd"]
    turns.close()
