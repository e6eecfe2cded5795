"""One broker that asks for rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.conftest import StartRedis

StartStrict = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start_strict(start_redis: StartRedis) -> AsyncIterator[StartStrict]:
    """Starts brokers on one store; their options are those given, and an authorizer."""
    url = start_redis().url
    started: list[Broker] = []

    async def start(node_id: int = 0, **options: object) -> Broker:
        store = Store(parse_address(url), node_at(node_id, "127.0.0.1", 9092 + node_id), StoreOptions())
        await store.start()
        known = BrokerOptions(**{"authorizer": "on", "super_users": "User:root;acme/User:root", **options})  # type: ignore[arg-type]
        broker = Broker(store, known, GroupSettings(initial_rebalance_delay_ms=0))
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()
        await broker.store.close()


@pytest.fixture
async def strict(start_strict: StartStrict) -> Broker:
    return await start_strict()
