"""Node leases: claimed, taken over by the same endpoint, refused to another, run out; leadership moves little."""

from __future__ import annotations

import asyncio

import pytest

from headrace.store.identity import new_id
from headrace.store.nodes import ANY_ID, Node, NodeIdTaken
from headrace.store.store import Store
from tests.store.conftest import OpenStore, StartValkey
from tests.store.produced import until
from tests.store.servers import Valkey


async def test_a_node_holds_a_lease_that_runs_out_by_itself(valkey: Valkey, store: Store) -> None:
    assert 0 < valkey.ask("PTTL", store.keys.node(0)) <= 10_000
    assert store.nodes.lease_is_valid
    assert store.nodes.live == [Node(0, "127.0.0.1", 9092)]


async def test_a_node_id_that_another_endpoint_holds_is_refused(store: Store, open_store: OpenStore) -> None:
    with pytest.raises(NodeIdTaken, match=r"127\.0\.0\.1:9092.*--node-id"):
        await open_store(node_id=0, port=9999)
    await store.nodes.renew()
    assert store.nodes.lease_is_valid


async def test_a_broker_at_the_same_endpoint_takes_the_lease_over(store: Store, open_store: OpenStore) -> None:
    again = await open_store(node_id=0)
    assert again.nodes.lease_is_valid
    await again.nodes.renew()


async def test_of_two_that_start_at_once_with_one_id_one_is_refused(open_store: OpenStore) -> None:
    answers = await asyncio.gather(*(open_store(node_id=0, port=port) for port in (9001, 9002)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["NodeIdTaken", "Store"]


async def test_a_node_without_an_id_takes_a_free_one_and_keeps_it(store: Store, open_store: OpenStore) -> None:
    second = await open_store(node_id=ANY_ID, port=9001)
    third = await open_store(node_id=ANY_ID, port=9002)
    assert [store.nodes.me.id, second.nodes.me.id, third.nodes.me.id] == [0, 1, 2]
    again = await open_store(node_id=ANY_ID, port=9002)
    assert again.nodes.me.id == 2


async def test_a_lease_that_ran_out_frees_the_id(open_store: OpenStore) -> None:
    first = await open_store(node_id=0, node_lease_ms=300)
    await first.link.close()
    await first.reads.close()
    second = await open_store(node_id=1)
    assert {node.id for node in second.nodes.live} <= {0, 1}

    async def alone() -> bool:
        await second.nodes.refresh()
        return second.nodes.live == [second.nodes.me]

    await until(alone)
    third = await open_store(node_id=0, port=9999)
    assert third.nodes.lease_is_valid


async def test_a_lease_is_not_valid_for_longer_than_the_store_says(valkey: Valkey, open_store: OpenStore) -> None:
    store = await open_store(node_lease_ms=200)
    valkey.pause()
    await until(lambda: not store.nodes.lease_is_valid)
    valkey.resume()
    await until(lambda: store.nodes.lease_is_valid)


async def test_a_lost_lease_is_claimed_again(valkey: Valkey, store: Store) -> None:
    term = store.nodes.term
    valkey.ask("DEL", store.keys.node(0), store.keys.nodes)
    await store.nodes.renew()
    assert valkey.ask("EXISTS", store.keys.node(0)) == 1
    assert store.nodes.term > term


async def test_a_node_alone_is_settled_and_another_one_unsettles_it_for_the_time_of_a_lease(
    open_store: OpenStore,
) -> None:
    store = await open_store(node_lease_ms=2_000)
    assert store.nodes.is_settled
    await open_store()
    await store.nodes.refresh()
    assert not store.nodes.is_settled
    await until(lambda: store.nodes.is_settled)


async def test_a_lease_that_ran_out_unsettles(valkey: Valkey, store: Store) -> None:
    valkey.ask("DEL", store.keys.node(0))
    await store.nodes.renew()
    assert not store.nodes.is_settled


async def test_closing_gives_the_lease_back_at_once(valkey: Valkey, store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    assert len(other.nodes.live) == 2
    await store.close()
    await other.nodes.refresh()
    assert other.nodes.live == [other.nodes.me]
    assert not store.nodes.lease_is_valid


async def test_a_lease_is_renewed_when_the_memory_is_full(start_valkey: StartValkey, open_store: OpenStore) -> None:
    server = start_valkey(maxmemory="100mb", maxmemory_policy="noeviction")
    store = await open_store(url=server.url)
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    await store.nodes.renew()
    assert store.nodes.lease_is_valid


async def test_all_nodes_name_the_same_leaders_and_controller(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    for store in stores:
        await store.nodes.refresh()
    topics = [new_id() for _ in range(50)]
    leaders = [[store.nodes.leader(topic, n) for topic in topics for n in range(4)] for store in stores]
    assert leaders[0] == leaders[1] == leaders[2]
    assert len(set(leaders[0])) == 3
    assert {store.nodes.controller for store in stores} == {stores[0].nodes.me}


async def test_a_node_that_leaves_moves_only_its_own_partitions(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    nodes = stores[0].nodes
    await nodes.refresh()
    topics = [new_id() for _ in range(200)]
    before = {topic: nodes.leader(topic, 0) for topic in topics}
    await stores[2].close()
    await nodes.refresh()
    after = {topic: nodes.leader(topic, 0) for topic in topics}
    moved = {topic for topic in topics if before[topic] != after[topic]}
    assert moved == {topic for topic in topics if before[topic] == stores[2].nodes.me}
    assert 20 < len(moved) < 120
