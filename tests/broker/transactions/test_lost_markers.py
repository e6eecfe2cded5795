"""The store loses the marker of a transaction, and its leader dies: what is open there is no part of the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.transactions.finishing import Finisher
from headrace.wire.errors import ErrorCode
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import TOPIC, Mover, Nodes, until
from tests.broker.transactions.test_lost_parts import Past, is_stable
from tests.broker.transactions.test_steps import die
from tests.broker.transactions.test_verdicts import led_elsewhere
from tests.broker_process import RedisProcess


@pytest.mark.parametrize("version", [1, 2])
async def test_a_batch_does_not_join_an_earlier_transaction_whose_marker_was_lost(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    nodes = Nodes(await start_node(1), await start_node(2))
    await nodes.create()
    mover = Mover(nodes, version=1)
    await mover.init_patiently()
    number, leader = await led_elsewhere(nodes, mover)
    assert await mover.send(number, b"committed") == 0
    past = Past(redis, f"*{{{TOPIC}:{number}:*")
    assert await mover.end(commit=True) == 0
    others = [one for one in range(3) if one != number]
    assert await mover.send(others[0], b"begun") == 0
    ends = _HeldBack(monkeypatch)
    dead = nodes.clients.pop(leader)
    await die(dead.broker)
    await asyncio.to_thread(past.comes_back)
    mover.version = version

    async def is_refused() -> bool:
        try:
            code = await mover.append(number, b"of the next one")
        except KeyError:
            return False  # the dead node still leads
        assert code != 0
        return code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)

    await until(is_refused)
    ends.go_on()
    await until(is_stable(nodes), 30)
    assert await nodes.read(number) == [b"committed"]


class _HeldBack:
    """Ends of transactions that wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._start, self._monkeypatch = Finisher.start, monkeypatch
        self._waiting: list[tuple[Any, ...]] = []
        monkeypatch.setattr(Finisher, "start", lambda *what: self._waiting.append(what))

    def go_on(self) -> None:
        self._monkeypatch.setattr(Finisher, "start", self._start)
        for what in self._waiting:
            self._start(*what)
