"""Real servers and stores for the tests of the store: each test has its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import msgspec
import pytest
import uvloop

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.log.partition import LogPartition
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.cold_copy import ColdCopy
from tests.store.produced import log_partition
from tests.store.proxy import Proxy
from tests.store.servers import Valkey
from tests.store.tiered import OPTIONS, OpenTiered, fill
from tests.stores import FORM, SharedServers, shared_servers

OpenStore = Callable[..., Awaitable[Store]]
StartValkey = Callable[..., Valkey]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the broker runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def start_valkey() -> Iterator[StartValkey]:
    """Servers with options of one's own."""
    started: list[Valkey] = []

    def start(**options: object) -> Valkey:
        if FORM != "one":
            if options.keys() - {"appendonly"}:  # without files a server is quicker, that is all
                pytest.skip("options are a single server's")
            return shared_servers()  # type: ignore[return-value]
        started.append(Valkey(**options))  # type: ignore[arg-type]
        return started[-1].start()

    yield start
    for server in started:
        server.end()


@pytest.fixture
def valkey(start_valkey: StartValkey) -> Valkey:
    """A server that keeps what it acknowledged."""
    return start_valkey()


@pytest.fixture
async def proxy(valkey: Valkey) -> AsyncIterator[Proxy]:
    """A way to the servers that can be cut."""
    proxy = Proxy()
    if isinstance(valkey, SharedServers):
        await proxy.start_before_ports(valkey.url, valkey.ports)
    else:
        await proxy.start_before_socket(str(valkey.home / "p"), valkey.socket)
    yield proxy
    await proxy.stop()


@pytest.fixture
def clock() -> MovableClock:
    """The time of all stores that `open_store` opens."""
    return MovableClock()


@pytest.fixture
async def open_store(valkey: Valkey, clock: MovableClock) -> AsyncIterator[OpenStore]:
    """Stores as brokers open them; each has a node id of its own unless told otherwise."""
    opened: list[Store] = []

    async def open_one(
        *, node_id: int | None = None, port: int = 0, url: str = "", via: Proxy | None = None, **options: object
    ) -> Store:
        node_id = len(opened) if node_id is None else node_id
        store = Store(
            via.address if via else parse_address(url or valkey.url),
            node_at(node_id, "127.0.0.1", port or 9092 + node_id),
            StoreOptions(**options),  # type: ignore[arg-type]
            clock,
        )
        await store.start()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


@pytest.fixture
async def partition(store: Store) -> LogPartition:
    """Partition 0 of a topic `orders` with one partition."""
    return await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)


@pytest.fixture
def cold() -> ColdCopy:
    return ColdCopy()


@pytest.fixture
async def open_tiered(valkey: Valkey, cold: ColdCopy) -> AsyncIterator[OpenTiered]:
    """Stores that share a Redis and a cold log."""
    opened: list[Store] = []

    async def open_one(node_id: int | None = None, **options: object) -> Store:
        node_id = len(opened) if node_id is None else node_id
        node = node_at(node_id, "127.0.0.1", 9092 + node_id)
        store = Store(parse_address(valkey.url), node, msgspec.structs.replace(OPTIONS, **options))
        store.plug_in(cold)
        await store.start()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def tiered(open_tiered: OpenTiered) -> LogPartition:
    """A partition of ten entries of two records each, at a second from each other; the tail cache has none of them."""
    store = await open_tiered()
    partition = await log_partition(
        store, await store.default.catalogue.create("orders", 1, {"remote.storage.enable": "true"}), 0
    )
    await fill(partition, 10)
    return partition
