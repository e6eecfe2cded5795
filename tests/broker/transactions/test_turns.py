"""Transactions whose markers have no replicas yet: they are ending, and hold up nobody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.broker.transactions.finishing import _AT_ONCE
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.broker.transactions.producing import Mover, Nodes, until
from tests.replicated import replicated

COPIED = "copied"


async def test_transactions_that_wait_for_replicas_hold_up_no_others(tmp_path: Path) -> None:
    with replicated(tmp_path / "servers") as servers:
        store = Store(parse_address(servers.url), node_at(0, "127.0.0.1", 9092), StoreOptions())
        await store.start()
        broker = Broker(store, BrokerOptions(), GroupSettings(initial_rebalance_delay_ms=0))
        broker.start()
        try:
            nodes = Nodes(broker)
            await nodes.create()
            await store.default.catalogue.create(COPIED, 1, {"min.insync.replicas": "2"})
            waiting = [Mover(nodes, f"waiting-{at}") for at in range(_AT_ONCE)]
            other = Mover(nodes)
            for mover in (*waiting, other):
                assert await mover.init() == 0
            for mover in waiting:
                assert await mover.send(0, mover.name.encode(), topic=COPIED) == 0
            servers.freeze(servers.replicas[0])
            assert await asyncio.gather(*(mover.end(commit=True) for mover in waiting)) == [0] * _AT_ONCE
            assert await other.send(0, b"other") == 0
            assert await other.end(commit=True) == 0
            await until(nodes.is_stable)
            assert await nodes.read(0) == [b"other"]
            servers.thaw(servers.replicas[0])
            await until(lambda: _has_finished(broker, _AT_ONCE + 1))
        finally:
            broker.stop()
            await store.close()


async def _has_finished(broker: Broker, number: int) -> bool:
    return broker.transactions.finished["commit"] == number
