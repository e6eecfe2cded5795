"""Node leases: claimed, taken over by the same endpoint, refused to another, run out; leadership moves little."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from headrace.store.cluster.catalogue import Topic
from headrace.store.cluster.identity import kafka_uuid, new_id
from headrace.store.cluster.nodes.endpoints import (
    Endpoint,
    Node,
    Registration,
    node_at,
    pack_registration,
    unpack_registration,
)
from headrace.store.cluster.nodes.nodes import ANY_ID, NodeIdTaken
from headrace.store.keys import ClusterKeys
from headrace.store.redis.address import parse_address
from headrace.store.redis.link import RedisLink
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore, StartValkey
from tests.store.produced import until
from tests.store.servers import Valkey
from tests.stores import of_one_server


def some_topic(**placing: Any) -> Topic:
    return Topic("orders", kafka_uuid(new_id(0)), 4, **placing)


async def test_a_node_holds_a_lease_that_runs_out_by_itself(valkey: Valkey, store: Store) -> None:
    assert 0 < valkey.ask("PTTL", store.keys.node(0)) <= 3_000
    assert store.nodes.lease_is_valid
    assert store.nodes.live == [node_at(0, "127.0.0.1", 9092)]


async def test_a_node_id_that_another_endpoint_holds_is_refused(store: Store, open_store: OpenStore) -> None:
    with pytest.raises(NodeIdTaken, match=r"127\.0\.0\.1:9092.*--node-id"):
        await open_store(node_id=0, port=9999)
    await store.nodes.renew()
    assert store.nodes.lease_is_valid


async def test_a_broker_at_the_same_endpoint_takes_the_lease_over(store: Store, open_store: OpenStore) -> None:
    again = await open_store(node_id=0)
    assert again.nodes.lease_is_valid
    await again.nodes.renew()


async def test_a_broker_that_shares_one_of_several_endpoints_takes_the_lease_over(
    valkey: Valkey, open_store: OpenStore
) -> None:
    first = await open_store(node_id=0)
    (seen,) = first.nodes.seen
    node = Node(0, (Endpoint("internal", "10.0.0.1", 1), Endpoint("public", "127.0.0.1", 9092)))
    valkey.ask("HSET", first.keys.nodes, 0, pack_registration(msgspec.structs.replace(seen.row, node=node)))
    again = await open_store(node_id=0)
    assert again.nodes.lease_is_valid


def test_a_record_is_read_by_the_version_before_listeners_and_its_records_are_read_here() -> None:
    node = Node(3, (Endpoint("internal", "10.0.0.1", 9092), Endpoint("public", "kafka.example.com", 9093)), "a")
    row = Registration(node, "token", "machine", "starting", is_back=True, restored_on="a server")
    assert unpack_registration(pack_registration(row)) == row
    assert json.loads(pack_registration(row)).items() >= {"id": 3, "host": "10.0.0.1", "port": 9092}.items()
    before = unpack_registration(b'{"id":3,"host":"10.0.0.1","port":9092}')
    assert before == Registration(node_at(3, "10.0.0.1", 9092))


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
    await first.leases.close()
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


async def test_nodes_whose_leases_a_store_lost_are_awaited_for_a_lease(
    valkey: Valkey, clock: MovableClock, store: Store
) -> None:
    """Else the first to come back would lead everything, and give up what the others could restore."""
    join(valkey, store, 7)
    await store.nodes.refresh()
    assert ids_of(store) == [0, 7]
    valkey.ask("DEL", store.keys.node(0), store.keys.node(7))
    await store.nodes.renew()
    assert ids_of(store) == [0, 7]
    clock.advance(store.options.node_lease_ms)
    await store.nodes.refresh()
    assert ids_of(store) == [0]


async def test_nodes_are_awaited_when_the_store_was_restarted(valkey: Valkey, store: Store) -> None:
    join(valkey, store, 7)
    await store.nodes.refresh()
    timeline = store.leases.timeline
    valkey.restart()
    await until(lambda: store.leases.timeline > timeline)
    valkey.ask("DEL", store.keys.node(7))
    await store.nodes.refresh()
    assert ids_of(store) == [0, 7]


async def test_a_node_that_dies_while_all_is_well_is_not_awaited(valkey: Valkey, store: Store) -> None:
    join(valkey, store, 7)
    await store.nodes.refresh()
    valkey.ask("DEL", store.keys.node(7))
    await store.nodes.refresh()
    assert ids_of(store) == [0]


def join(valkey: Valkey, store: Store, node_id: int) -> None:
    """Registers a node of which nothing else is there."""
    row = Registration(node_at(node_id, "127.0.0.1", 9092 + node_id), "token")
    valkey.ask("HSET", store.keys.nodes, node_id, pack_registration(row))
    valkey.ask("SET", store.keys.node(node_id), "token")


def ids_of(store: Store) -> list[int]:
    return [node.id for node in store.nodes.live]


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
    topics = [some_topic() for _ in range(50)]
    leaders = [[store.nodes.leader(topic, n) for topic in topics for n in range(4)] for store in stores]
    assert leaders[0] == leaders[1] == leaders[2]
    assert len(set(leaders[0])) == 3
    assert {store.nodes.controller for store in stores} == {stores[0].nodes.me}


async def test_a_node_that_leaves_moves_only_its_own_partitions(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    nodes = stores[0].nodes
    await nodes.refresh()
    topics = {topic.id: topic for topic in (some_topic() for _ in range(200))}
    before = {id: nodes.leader(topic, 0) for id, topic in topics.items()}
    await stores[2].close()
    await nodes.refresh()
    after = {id: nodes.leader(topic, 0) for id, topic in topics.items()}
    moved = {id for id in topics if before[id] != after[id]}
    assert moved == {id for id in topics if before[id] == stores[2].nodes.me}
    assert 20 < len(moved) < 120


async def test_replicas_are_the_nodes_that_would_lead_next_in_order(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    for store in stores:
        await store.nodes.refresh()
    topic = some_topic(copies=3)
    expected = [node.id for node in stores[0].nodes.replicas(topic, 0)]
    assert sorted(expected) == [0, 1, 2]
    by_id = {store.nodes.me.id: store for store in stores}
    while expected:
        for node_id in expected:
            await by_id[node_id].nodes.refresh()
            assert [node.id for node in by_id[node_id].nodes.replicas(topic, 0)] == expected
            assert by_id[node_id].nodes.leader(topic, 0).id == expected[0]
        await by_id[expected.pop(0)].close()


async def test_nodes_chosen_by_hand_lead_while_they_live(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    nodes = stores[0].nodes
    await nodes.refresh()
    topic = some_topic(copies=2, assignments={0: [2, 1], 1: [1, 2]})
    assert [node.id for node in nodes.replicas(topic, 0)] == [2, 1]
    assert [node.id for node in nodes.replicas(topic, 1)] == [1, 2]
    await stores[2].close()
    await nodes.refresh()
    assert [node.id for node in nodes.replicas(topic, 0)] == [1]
    await stores[1].close()
    await nodes.refresh()
    assert [node.id for node in nodes.replicas(topic, 0)] == [0]


async def test_the_cluster_keeps_its_id_when_the_store_is_flushed(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    cluster_id = store.cluster_id
    valkey.ask("FLUSHALL")
    other = await open_store()  # at once: it does not make an id of its own before the running node puts its back
    assert other.cluster_id == store.cluster_id == cluster_id
    assert valkey.ask("HGET", store.keys.cluster, "id").decode() == cluster_id


@of_one_server
async def test_a_node_makes_an_id_if_those_who_listen_give_none(
    valkey: Valkey, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them may hang, or be no node at all."""
    monkeypatch.setattr("headrace.store.store._CLUSTER_ID_PATIENCE_S", 0.2)
    channel, listener = ClusterKeys().announcements, RedisLink(parse_address(valkey.url), "listener")
    listener.listen_to(channel, lambda _: None)
    await listener.start()
    await until(lambda: valkey.ask("PUBSUB", "NUMSUB", channel)[1] == 1)
    store = await open_store()
    assert valkey.ask("HGET", store.keys.cluster, "id").decode() == store.cluster_id
    await listener.close()


async def test_nodes_agree_on_the_id_that_the_store_has(
    valkey: Valkey, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.ask("HSET", store.keys.cluster, "id", "another")
    await until(lambda: store.cluster_id == "another")
    assert "cluster id" in caplog.text
