"""Brokers in this process on one store, which can be made to die between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop

from headrace.broker.broker import Broker
from headrace.broker.options import BrokerOptions
from headrace.groups.settings import GroupSettings
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.broker_process import RedisProcess
from tests.conftest import StartRedis

StartNode = Callable[..., Awaitable[Broker]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the broker runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def redis(start_redis: StartRedis) -> RedisProcess:
    return start_redis()


@pytest.fixture
async def start_node(redis: RedisProcess) -> AsyncIterator[StartNode]:
    """Starts nodes on one store; a lease is short, so that the next one takes over soon."""
    started: list[Broker] = []

    async def start(node_id: int = 0) -> Broker:
        options = StoreOptions(node_lease_ms=1_000)
        store = Store(parse_address(redis.url), node_at(node_id, "127.0.0.1", 9092 + node_id), options)
        await store.start()
        broker = Broker(store, BrokerOptions(), GroupSettings(initial_rebalance_delay_ms=0))
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()
        await broker.store.close()
