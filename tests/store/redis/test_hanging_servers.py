"""A primary that hangs and is replaced: what is in flight on it is given up once that is known, not after a timeout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from signal import Signals

import pytest

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.embedded.trial import TrialServer
from headrace.store.options import StoreOptions
from headrace.store.partition.base import Partition
from headrace.store.redis.address import parse_address
from headrace.store.redis.errors import StoreError
from headrace.store.redis.replicas import Replicas, count_in_step
from headrace.store.store import Store
from tests.clusters import ClusterOfServers, ask_for_failover, running
from tests.sentinels import WatchedServers
from tests.store.partition.test_contract import all_of, numbers, produce_each
from tests.store.produced import produce, until, values
from tests.store.redis.test_cluster import FORMATS, replica_has
from tests.store.redis.test_replaced_servers import owner_by

TIMEOUT_MS = 30_000
"""Of a command: no test waits for it."""
OPTIONS = StoreOptions(timeout_ms=TIMEOUT_MS, replica_timeout_ms=TIMEOUT_MS)
AT_ONCE_S = TIMEOUT_MS / 2000
"""Long before that, however busy the machine is."""


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = Store(parse_address(url), node_at(0, "127.0.0.1", 9092), OPTIONS)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfServers]:
    with running(ClusterOfServers(tmp_path / "servers", replicas=1)) as servers:
        yield servers


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedServers]:
    servers = WatchedServers(tmp_path / "servers")
    try:
        yield servers.start()
    finally:
        servers.stop()


async def all_have_it(watched: WatchedServers) -> None:
    """What is written now is there whichever replica takes over."""
    primary = watched.primary
    for replica in watched.servers:
        if replica is not primary:
            await until(lambda one=replica: replica_has(primary, one))  # type: ignore[misc]


async def append_while_it_is_replaced(partition: Partition, old: TrialServer, replaced: Callable[[], bool]) -> None:
    """Freezes a partition's server and appends; the answer is due once another server took over."""
    old.send_signal(Signals.SIGSTOP)
    try:
        late = produce(partition, b"3", timeout_s=60)
        await until(lambda: asyncio.to_thread(replaced), 60)
        async with asyncio.timeout(AT_ONCE_S):
            await late
        assert values(await all_of(partition)) == numbers(0, 4)
    finally:
        old.send_signal(Signals.SIGCONT)


@FORMATS
async def test_of_a_cluster(cluster: ClusterOfServers, configs: dict[str, str]) -> None:
    async with opened(cluster.url) as store:
        partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
        await produce_each(partition, 0, 3)
        old = cluster.owner_of(partition.slot.number)
        new, other = cluster.replica_of(old), next(one for one in cluster.primaries if one is not old)
        await until(lambda: replica_has(old, new))

        def replaced() -> bool:
            if owner_by(other, partition.slot.number) != new.port:
                ask_for_failover(new, "TAKEOVER")
                return False
            return True

        await append_while_it_is_replaced(partition, old, replaced)


@FORMATS
async def test_behind_sentinels(watched: WatchedServers, configs: dict[str, str]) -> None:
    async with opened(watched.url) as store:
        partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
        await produce_each(partition, 0, 3)
        old = watched.primary
        await all_have_it(watched)
        await append_while_it_is_replaced(partition, old, lambda: watched.primary is not old)


async def test_a_connection_that_is_being_made_to_it_is_given_up_too(watched: WatchedServers) -> None:
    async with opened(watched.url) as store:
        partition = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
        await produce_each(partition, 0, 3)
        old = watched.primary
        await all_have_it(watched)
        old.send_signal(Signals.SIGSTOP)
        for link in partition.shard.links:
            link.drop("the test makes it connect again")
        await until(lambda: not partition.link.is_up)
        await append_while_it_is_replaced(partition, old, lambda: watched.primary is not old)


async def test_replicas_that_it_was_asked_about_are_asked_about_anew(watched: WatchedServers) -> None:
    async with opened(watched.url) as store:
        partition = await store.default.partition(await store.default.catalogue.create("orders", 1, {}), 0)
        replicas, old = partition.shard.replicas, watched.primary
        assert await replicas.have(partition.keys.touched, 1)
        await all_have_it(watched)
        old.send_signal(Signals.SIGSTOP)
        try:
            hanging = asyncio.create_task(replicas.have(partition.keys.touched, 1))
            await until(lambda: watched.primary is not old, 60)
            await until(watched_has_a_replica(watched), 60)
            async with asyncio.timeout(AT_ONCE_S):
                await until(lambda: has(replicas, partition.keys.touched))
            with pytest.raises(StoreError):
                await hanging
        finally:
            old.send_signal(Signals.SIGCONT)


def watched_has_a_replica(watched: WatchedServers) -> Callable[[], bool]:
    return lambda: count_in_step(watched.primary.info("replication")) == 1


async def has(replicas: Replicas, key: str) -> bool:
    with contextlib.suppress(StoreError):
        return await replicas.have(key, 1)
    return False
