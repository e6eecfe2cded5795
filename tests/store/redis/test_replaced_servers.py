"""A primary that hangs takes commands for a moment after its replica took over: they are lost with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from signal import Signals
from typing import TypeVar

import pytest

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.cluster.owned.things import Changes, OwnedKeys, OwnedStore
from headrace.store.embedded.trial import TrialServer
from headrace.store.options import StoreOptions
from headrace.store.redis.address import parse_address
from headrace.store.redis.cluster import ClusterTopology
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.store.redis.errors import StoreAway, StoreError
from headrace.store.redis.replicas import count_in_step
from headrace.store.redis.topology import Slot
from headrace.store.store import Store
from tests.clusters import ClusterOfServers, running
from tests.store.partition.test_contract import produce_each
from tests.store.produced import produce, until
from tests.store.redis.test_cluster import FORMATS, replica_has

T = TypeVar("T")
GROUPS = OwnedKeys(
    lambda org: f"{org}:groups", lambda org, name: f"{org}:{{{name}}}:group", lambda org, name: f"{org}:{{{name}}}:rows"
)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ClusterOfServers]:
    """With two replicas each: one that took over still has the other."""
    with running(ClusterOfServers(tmp_path / "servers", replicas=2)) as cluster:
        yield cluster


@pytest.fixture
async def store(servers: ClusterOfServers) -> AsyncIterator[Store]:
    store = Store(parse_address(servers.url), node_at(0, "127.0.0.1", 9092), StoreOptions())
    await store.start()
    yield store
    await store.close()


async def begun_while_it_hangs(
    servers: ClusterOfServers, store: Store, key: str, begin: Callable[[], T]
) -> tuple[T, TrialServer, TrialServer]:
    """What was begun at a key's server that hangs, and that server and its replica, which the key is read from."""
    slot = store.topology.slot_of(key)
    old = servers.owner_of(slot.number)
    new, other = servers.replica_of(old), next(one for one in servers.primaries if one is not old)
    await until(lambda: replica_has(old, new))
    wire = slot.link.link.wire
    assert wire is not None
    await until(lambda: not wire.is_waiting)
    assert isinstance(store.topology, ClusterTopology)
    store.topology._let_go = lambda needed: None  # type: ignore[method-assign]  # its answer comes before that
    old.send_signal(Signals.SIGSTOP)
    begun = begin()
    await until(lambda: wire.is_waiting)
    await asyncio.to_thread(new.ask, "CLUSTER", "FAILOVER", "TAKEOVER")
    await until(lambda: owner_by(other, slot.number) == new.port)
    slot.move_to(next(one for one in store.topology.shards if one.link.address.port == other.port))
    await until(lambda: has_moved(slot, key, new))
    return begun, old, new


def owner_by(server: TrialServer, slot: int) -> int:
    """The port of the slot's server, as another one knows it."""
    rows = server.ask("CLUSTER", "SLOTS")
    return next(int(primary[1]) for first, last, primary, *_ in rows if first <= slot <= last)


async def has_moved(slot: Slot, key: str, server: TrialServer) -> bool:
    with contextlib.suppress(StoreError):
        await slot.link.call("EXISTS", key)
    return slot.link.address.port == server.port and slot.link.is_up


@FORMATS
async def test_an_append_that_a_replaced_server_took_is_made_on_the_new_one(
    servers: ClusterOfServers, store: Store, configs: dict[str, str]
) -> None:
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    await produce_each(partition, 0, 3)
    late, old, new = await begun_while_it_hangs(servers, store, partition.keys.log, lambda: produce(partition, b"3"))
    await partition.confirm()
    assert not late.done()
    old.send_signal(Signals.SIGCONT)
    await late
    await produce(partition, b"4")
    assert len(new.ask("XRANGE", partition.keys.log, "-", "+")) == 5


async def test_a_write_that_a_replaced_server_took_is_not_confirmed_by_the_replicas_of_the_new_one(
    servers: ClusterOfServers, store: Store
) -> None:
    groups = OwnedStore(store.topology, GROUPS)
    owner = await groups.create("org", "app")
    store.topology.copied.wanted = lambda: 1
    await groups.write("org", "app", owner, Changes({"state": b"1"}, {}))
    document = GROUPS.document("org", "app")

    def write() -> asyncio.Task[None]:
        return asyncio.create_task(groups.write("org", "app", owner, Changes({"state": b"2"}, {})))

    late, old, new = await begun_while_it_hangs(servers, store, document, write)
    await until(lambda: count_in_step(new.info("replication")) == 1)
    old.send_signal(Signals.SIGCONT)
    with pytest.raises(NotConfirmed):
        await late
    assert new.ask("HGET", document, "state") == b"1"


@pytest.mark.parametrize("wanted", [0, 1])
async def test_a_verdict_that_a_replaced_server_took_is_given_on_the_new_one(
    servers: ClusterOfServers, store: Store, wanted: int
) -> None:
    transactions, key = store.transactions, store.keys.of("default").group_verdicts("app")
    await transactions.give_verdict("default", "app", 7, 1, commit=True)
    store.topology.copied.wanted = lambda: wanted

    def give() -> asyncio.Task[None]:
        return asyncio.create_task(transactions.give_verdict("default", "app", 7, 2, commit=True))

    late, old, new = await begun_while_it_hangs(servers, store, key, give)
    await until(lambda: count_in_step(new.info("replication")) == 1)
    old.send_signal(Signals.SIGCONT)
    await late
    assert new.ask("HGET", key, "7:2") == b"commit"


async def test_a_script_that_a_replaced_server_does_not_know_is_not_run_on_the_new_one(
    servers: ClusterOfServers, store: Store
) -> None:
    groups = OwnedStore(store.topology, GROUPS)
    owner, document = await groups.create("org", "app"), GROUPS.document("org", "app")
    await groups.write("org", "app", owner, Changes({"state": b"1"}, {}))
    servers.owner_of(store.topology.slot_of(document).number).ask("SCRIPT", "FLUSH")

    def write() -> asyncio.Task[None]:
        return asyncio.create_task(groups.write("org", "app", owner, Changes({"state": b"2"}, {})))

    late, old, new = await begun_while_it_hangs(servers, store, document, write)
    old.send_signal(Signals.SIGCONT)
    with pytest.raises(StoreAway):
        await late
    assert new.ask("HGET", document, "state") == b"1"


@pytest.mark.parametrize("wanted", [0, 1])
async def test_a_row_that_a_replaced_server_took_is_not_taken_for_stored(
    servers: ClusterOfServers, store: Store, wanted: int
) -> None:
    await store.acls.put("default", "one", b"1")
    store.topology.copied.wanted = lambda: wanted

    def change() -> asyncio.Task[bool]:
        return asyncio.create_task(store.acls.put("default", "one", b"2"))

    late, old, new = await begun_while_it_hangs(servers, store, store.acls.key, change)
    await until(lambda: count_in_step(new.info("replication")) == 1)
    await store.acls.settle()
    old.send_signal(Signals.SIGCONT)
    with pytest.raises(NotConfirmed):
        await late
    assert store.acls.get("default", "one") == b"1" == new.ask("HGET", store.acls.key, "default/one")
    assert await store.acls.put("default", "one", b"2")
    assert new.ask("HGET", store.acls.key, "default/one") == b"2"


async def test_the_partitions_of_a_topic_stay_whose_deletion_a_replaced_server_took(
    servers: ClusterOfServers, store: Store
) -> None:
    catalogue = store.default.catalogue
    await catalogue.delete(await catalogue.create("first", 1, {}))  # from now on the server knows the script
    partition = await store.default.partition(await catalogue.create("orders", 1, {}), 0)
    await produce_each(partition, 0, 3)

    def delete() -> asyncio.Task[None]:
        return asyncio.create_task(catalogue.delete(partition.topic))

    late, old, _ = await begun_while_it_hangs(servers, store, catalogue.key, delete)
    old.send_signal(Signals.SIGCONT)
    with pytest.raises(NotConfirmed):
        await late
    await until(lambda: partition.link.is_up)
    assert await partition.link.call("XLEN", partition.keys.log) == 3
    await catalogue.delete(partition.topic)
    assert await partition.link.call("EXISTS", partition.keys.log) == 0
