"""The upkeep concerns all servers: what fails on one does not keep it from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import kafka_uuid, new_id
from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.embedded.trial import TrialServer
from headrace.store.keys import ClusterKeys
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.memory import NO_EVICTION
from headrace.store.redis.shard import Shard
from headrace.store.store import Store
from tests.clusters import ClusterOfServers, running
from tests.store.produced import is_up, until


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ClusterOfServers]:
    with running(ClusterOfServers(tmp_path / "servers", replicas=0)) as cluster:
        yield cluster


def prefix_of_two_servers(servers: ClusterOfServers) -> str:
    """One with which the cluster's id is on another server than the leases and the topics."""
    for prefix in map(str, count()):
        keys = ClusterKeys(prefix)
        home, nodes, topics = map(servers.owner_of_key, (keys.cluster, keys.nodes, keys.of("default").topics))
        if home is not nodes is topics:
            return prefix
    raise AssertionError


async def opened(servers: ClusterOfServers, prefix: str) -> Store:
    store = Store(parse_address(servers.url), node_at(0, "127.0.0.1", 9092), StoreOptions(prefix=prefix))
    await store.start()
    await until(lambda: is_up(store))
    return store


def shard_at(store: Store, server: TrialServer) -> Shard:
    return next(shard for shard in store.topology.shards if shard.link.address.port == server.port)


def limit_to_what_is_used(server: TrialServer) -> None:
    """It has a policy that refuses writes, so nothing is lost."""
    assert server.info("memory")["maxmemory_policy"] == NO_EVICTION
    server.ask("CONFIG", "SET", "maxmemory", server.info("memory")["used_memory"])


def topic_on(store: Store, servers: ClusterOfServers, is_meant: Callable[[TrialServer], bool]) -> Topic:
    """A topic that nobody made, with its partition on such a server."""
    topics = (Topic("orders", kafka_uuid(new_id(ms)), 1) for ms in count())
    return next(one for one in topics if is_meant(servers.owner_of_key(one.keys(store.default.keys, 0).log)))


def begin_to_delete(store: Store, servers: ClusterOfServers, topic: Topic) -> None:
    """As if whoever deleted it had died."""
    key = store.default.keys.deleted_topics
    servers.owner_of_key(key).ask("HSET", key, topic.id, msgspec.json.encode(topic))
    store.default.catalogue.must_sweep = True


def is_listed(store: Store, servers: ClusterOfServers, topic: Topic) -> bool:
    """Whether its deletion is still to be finished."""
    key = store.default.keys.deleted_topics
    return bool(servers.owner_of_key(key).ask("HEXISTS", key, topic.id))


async def test_memory_marks_and_deletions_go_on_while_the_server_of_the_cluster_id_is_away(
    servers: ClusterOfServers, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = prefix_of_two_servers(servers)
    store = await opened(servers, prefix)
    try:
        home = servers.owner_of_key(store.keys.cluster)
        well = next(one for one in servers.servers if one is not home)
        shard, away = shard_at(store, well), shard_at(store, home)
        home.kill()
        await until(lambda: not away.link.is_up)
        limit_to_what_is_used(well)
        await until(lambda: shard.memory.is_full)
        well.ask("CONFIG", "SET", "maxmemory", 0, "maxmemory-policy", "allkeys-lru")
        await until(lambda: "redis now evicts keys" in caplog.text)
        assert not shard.memory.is_full
        topic = topic_on(store, servers, lambda server: server is not home)
        begin_to_delete(store, servers, topic)
        await until(lambda: not is_listed(store, servers, topic))
    finally:
        await store.close()


async def test_a_server_that_refuses_to_be_looked_at_keeps_no_other_from_it(servers: ClusterOfServers) -> None:
    store = await opened(servers, "headrace")
    try:
        first, *others = store.topology.shards
        at_port = {server.port: server for server in servers.servers}
        at_port[first.link.address.port].ask("ACL", "SETUSER", "default", "-info")
        for shard in others:
            limit_to_what_is_used(at_port[shard.link.address.port])
        await until(lambda: all(shard.memory.is_full for shard in others))
    finally:
        await store.close()


async def test_a_deletion_that_waits_for_a_server_keeps_no_other_from_being_finished(
    servers: ClusterOfServers,
) -> None:
    store = await opened(servers, prefix_of_two_servers(servers))
    try:
        needed = {servers.owner_of_key(key) for key in (store.keys.cluster, store.default.keys.topics)}
        (away,) = set(servers.servers) - needed
        waits = topic_on(store, servers, lambda server: server is away)
        topic = topic_on(store, servers, lambda server: server is not away)
        away.kill()
        await until(lambda: not shard_at(store, away).link.is_up)
        begin_to_delete(store, servers, waits)
        begin_to_delete(store, servers, topic)
        await until(lambda: not is_listed(store, servers, topic))
        assert is_listed(store, servers, waits)
    finally:
        await store.close()
