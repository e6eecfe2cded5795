"""Keys over the servers of a real cluster: where they are, what follows them, and what must not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from signal import Signals

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.embedded.trial import TrialServer
from headrace.store.keys import ClusterKeys
from headrace.store.options import StoreOptions
from headrace.store.partition.base import Partition
from headrace.store.redis.address import parse_address
from headrace.store.redis.errors import RedisError, StoreRefused
from headrace.store.redis.topology import slot_number
from headrace.store.store import Store
from tests.broker_process import wait_until
from tests.clusters import ClusterOfServers, running
from tests.store.partition.test_contract import produce_each
from tests.store.produced import produce, until

Open = Callable[..., Awaitable[Store]]
FORMATS = pytest.mark.parametrize("configs", [{}, {"headrace.format": "stream"}], ids=["log", "stream"])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfServers]:
    """Tests move slots and make topics of their own; none breaks it."""
    with running(ClusterOfServers(tmp_path_factory.mktemp("cluster"), replicas=1)) as cluster:
        yield cluster


@pytest.fixture
async def open_on() -> AsyncIterator[Open]:
    opened: list[Store] = []

    async def open_one(url: str, **options: object) -> Store:
        store = Store(parse_address(url), node_at(len(opened), "127.0.0.1", 9092), StoreOptions(**options))  # type: ignore[arg-type]
        await store.start()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(servers: ClusterOfServers, open_on: Open, topic: str) -> Store:
    return await open_on(servers.url, prefix=topic)


async def partition_of(store: Store, configs: dict[str, str] | None = None, number: int = 0) -> Partition:
    topic = store.default.catalogue.by_name.get("orders")
    return await store.default.partition(
        topic or await store.default.catalogue.create("orders", 6, configs or {}), number
    )


@given(st.text(alphabet=st.sampled_from("ab{}:é"), max_size=12))
def test_a_slot_is_the_one_that_other_clients_compute(key: str) -> None:
    assert slot_number(key) == key_slot(key.encode())


def test_all_keys_of_leases_share_a_slot() -> None:
    keys = ClusterKeys()
    assert slot_number(keys.nodes) == slot_number(keys.node(0)) == slot_number(keys.node(77))


@FORMATS
async def test_partitions_are_on_all_servers_and_each_knows_its_own(store: Store, configs: dict[str, str]) -> None:
    partitions = [await partition_of(store, configs, number) for number in range(6)]
    for partition in partitions:
        await produce_each(partition, 0, 3)
    assert len({repr(partition.shard) for partition in partitions}) > 1
    assert len({partition.link.identity for partition in partitions}) > 1


async def move_away(servers: ClusterOfServers, partition: Partition) -> None:
    slot = slot_number(partition.keys.log)
    owner = servers.owner_of(slot)
    await asyncio.to_thread(servers.move, [slot], next(one for one in servers.primaries if one is not owner))


@FORMATS
async def test_an_append_goes_on_where_its_slot_went(
    servers: ClusterOfServers, store: Store, configs: dict[str, str]
) -> None:
    partition = await partition_of(store, configs)
    await produce_each(partition, 0, 3)
    before, end, timeline = partition.shard, partition.end, partition.link.timeline
    await move_away(servers, partition)
    assert (await produce(partition, b"3")).base_offset >= end
    assert partition.shard is not before
    assert partition.link.timeline > timeline
    assert partition.gaps == []
    assert partition.leader_epoch == 0


async def test_a_redirected_append_is_refused_and_not_sent_on(servers: ClusterOfServers, store: Store) -> None:
    """A replica that lagged and took over would accept it behind a hole."""
    partition = await partition_of(store)
    wrong = next(shard for shard in store.topology.shards if shard is not partition.shard)
    partition.slot.move_to(wrong)
    with pytest.raises(RedisError, match="MOVED"):
        await partition.link.send("XADD", partition.keys.log, "NOMKSTREAM", "450-1", "b", "x")
    assert partition.shard is not wrong, "the redirect was taken note of"
    assert await partition.link.call("XLEN", partition.keys.log) == 0


async def test_what_is_no_append_follows_its_slot(servers: ClusterOfServers, store: Store) -> None:
    partition = await partition_of(store)
    await produce_each(partition, 0, 3)
    right, slot = partition.shard, partition.slot
    wrong = next(shard for shard in store.topology.shards if shard is not right)
    slot.move_to(wrong)
    assert await slot.link.call("XLEN", partition.keys.log) == 3
    slot.move_to(wrong)
    assert await slot.link.pipeline(("EXISTS", partition.keys.log), ("XLEN", partition.keys.log)) == [1, 3]
    slot.move_to(wrong)
    assert await slot.link.transaction(("EXISTS", partition.keys.log), ("XLEN", partition.keys.log)) == [1, 3]
    assert partition.shard is right


@FORMATS
async def test_half_a_slot_is_read_where_each_key_is_and_appends_wait_for_the_rest(
    servers: ClusterOfServers, store: Store, configs: dict[str, str]
) -> None:
    partition = await partition_of(store, configs)
    await produce_each(partition, 0, 3)
    number = slot_number(partition.keys.log)
    target = next(one for one in servers.primaries if one is not servers.owner_of(number))
    moving = asyncio.create_task(asyncio.to_thread(servers.move_key_by_key, number, target))
    await asyncio.gather(*(produce(partition, b"%d" % n) for n in range(3, 20)))
    await moving
    assert (await produce(partition, b"20")).base_offset > 0
    assert partition.gaps == []


async def test_a_server_that_is_no_cluster_and_one_that_is_are_told_apart(
    servers: ClusterOfServers, open_on: Open
) -> None:
    with pytest.raises(StoreRefused, match=r"is part of a cluster; start with --redis redis\+cluster://127.0.0.1:"):
        await open_on(f"redis://{servers.servers[0]}")


async def test_a_server_without_a_name_among_named_ones_is_reached_at_its_address(
    tmp_path: Path, open_on: Open, topic: str
) -> None:
    """Whichever server is asked: what it was asked as says nothing about where another one is."""
    with running(ClusterOfServers(tmp_path / "servers", primaries=3, replicas=0)) as servers:
        *named, nameless = servers.servers
        for server in servers.servers:
            server.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
        for server in named:
            server.ask("CONFIG", "SET", "cluster-announce-hostname", "localhost")
        wait_until(lambda: all(_hosts(one) == {b"localhost", b"?"} for one in servers.servers), "no names", 30)
        store = await open_on(servers.url, prefix=topic)
        key = next(f"{at}" for at in count() if servers.owner_of_key(f"{at}") is nameless)
        slot = store.topology.slot_of(key)
        timeline = slot.link.timeline
        for _ in range(2):  # once from whoever was named, then from those that the map names
            await store.topology._refresh()  # type: ignore[attr-defined]
            assert repr(slot.shard) == f"redis://{nameless}"
        assert slot.link.timeline == timeline
        await asyncio.to_thread(servers.move, [slot.number], named[0])
        await slot.link.call("SET", key, 1)
        await asyncio.to_thread(servers.move, [slot.number], nameless)
        await until(lambda: repr(slot.shard) == f"redis://{nameless}")
        await slot.link.call("SET", key, 2)
        assert nameless.ask("GET", key) == b"2"


def _hosts(server: TrialServer) -> set[bytes]:
    return {node[0] for row in server.ask("CLUSTER", "SLOTS") for node in row[2:]}


async def test_a_dead_seed_is_passed_over(servers: ClusterOfServers, open_on: Open, topic: str) -> None:
    url = servers.url.replace("//", "//127.0.0.1:1,", 1)
    store = await open_on(url, prefix=topic)
    assert len(store.topology.shards) == 3


@FORMATS
async def test_what_a_fail_over_lost_for_good_is_reported_by_offset_and_never_given_out_again(
    tmp_path: Path, open_on: Open, configs: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The replica stands still, so it lacks what was acknowledged; and the broker has it no more, either."""
    with running(ClusterOfServers(tmp_path, replicas=1)) as servers:
        store = await open_on(servers.url, tail_cache_bytes=0)
        partition = await partition_of(store, configs)
        await produce_each(partition, 0, 5)
        slot, kept = slot_number(partition.keys.log), partition.end
        primary = servers.owner_of(slot)
        replica = servers.replica_of(primary)
        await until(lambda: replica_has(primary, replica))
        replica.send_signal(Signals.SIGSTOP)
        primary.ask("CLIENT", "KILL", "TYPE", "replica")  # what is in the buffers of its connection would reach it
        acknowledged = await produce_each(partition, 5, 10)
        end = partition.end
        primary.kill()
        replica.send_signal(Signals.SIGCONT)
        with caplog.at_level(logging.ERROR):
            after = await produce(partition, b"after", timeout_s=60)
    assert after.base_offset >= end, "an offset was given out twice"
    (gap,) = partition.gaps
    assert gap.start <= kept <= min(acknowledged)
    assert gap.end >= end
    assert store.events["gaps"] == 1
    assert "the store lost acknowledged records" in caplog.text


def replica_has(primary: TrialServer, replica: TrialServer) -> bool:
    return primary.info("replication")["master_repl_offset"] == replica.info("replication")["slave_repl_offset"]
