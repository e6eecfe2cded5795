"""Several servers lose their last second each for itself: a prepare without its markers, or a marker alone.

One server stands for all of them here. What one of several would have lost is put back as it was before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis import Redis

from headrace.broker.broker import Broker
from headrace.store.log.writer import LogWriter
from headrace.store.redis.errors import StoreAway
from headrace.wire.errors import ErrorCode
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import PARTITIONS, TOPIC, Mover, Nodes, until
from tests.broker.transactions.test_steps import die, settled
from tests.broker_process import RedisProcess

ID, LOGS = "*{txn:mover}*", [f"*{{{TOPIC}:{number}:*" for number in range(PARTITIONS)]


class Past:
    """Keys of the store as they were."""

    def __init__(self, store: RedisProcess, *patterns: str) -> None:
        self._store = store
        with Redis.from_url(store.url) as server:
            names = [name for pattern in patterns for name in server.keys(pattern)]
            self._kept = {name: server.dump(name) for name in names}
            self._patterns = patterns

    def comes_back(self) -> None:
        """The server starts again, and these keys are as they were."""
        with Redis.from_url(self._store.url) as server:
            for name in [name for pattern in self._patterns for name in server.keys(pattern)]:
                server.delete(name)
            for name, value in self._kept.items():
                server.restore(name, 0, value, replace=True)
        self._store.stop()
        self._store.start()


async def _prepared(start_node: StartNode, version: int) -> tuple[Nodes, Mover]:
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    for number in range(PARTITIONS):
        assert await mover.send(number, b"%d" % number) == 0
    assert await mover.send_offsets("readers", 7) == 0
    return nodes, mover


async def after(nodes: Nodes, start_node: StartNode, past: Past, node_dies: bool) -> Nodes:
    (client,) = nodes.clients.values()
    broker: Broker = client.broker
    if node_dies:
        await die(broker)
    await asyncio.to_thread(past.comes_back)
    return Nodes(await start_node()) if node_dies else nodes


async def _all_or_nothing(nodes: Nodes, committed: bool) -> None:
    await until(is_stable(nodes), 30)
    for number in range(PARTITIONS):
        assert await nodes.read(number) == ([b"%d" % number] if committed else [])
    assert await settled(nodes) == (0, 7 if committed else -1)


def is_stable(nodes: Nodes) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return all(client.broker.store.is_up for client in nodes.clients.values()) and await nodes.is_stable()

    return is_so


LOSSES = {
    "prepare": (ID,),
    "prepare and two markers": (ID, *LOGS[1:]),
    "a marker": (LOGS[1],),
    "two markers": tuple(LOGS[1:]),
}


async def _lose(
    start_node: StartNode, redis: RedisProcess, lost: str, *, commit: bool, node_dies: bool, version: int
) -> None:
    nodes, mover = await _prepared(start_node, version)
    past = Past(redis, *LOSSES[lost])
    assert await mover.end(commit=commit) == 0
    nodes = await after(nodes, start_node, past, node_dies)
    await _all_or_nothing(nodes, commit)
    again = Mover(nodes, version=version)
    await again.init_patiently()
    assert await again.send(0, b"next") == 0
    assert await again.end(commit=True) == 0
    assert (await nodes.read(0))[-1] == b"next"


@pytest.mark.parametrize("lost", ["prepare and two markers", "a marker"])
async def test_what_one_server_lost_follows_from_what_another_one_kept(
    start_node: StartNode, redis: RedisProcess, lost: str
) -> None:
    await _lose(start_node, redis, lost, commit=True, node_dies=True, version=2)


@pytest.mark.faults
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("node_dies", [False, True])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("lost", LOSSES)
async def test_whatever_one_server_lost_follows_from_what_another_one_kept(
    start_node: StartNode, redis: RedisProcess, lost: str, commit: bool, node_dies: bool, version: int
) -> None:
    await _lose(start_node, redis, lost, commit=commit, node_dies=node_dies, version=version)


@pytest.mark.parametrize("version", [1, 2])
async def test_an_owner_whose_number_went_back_with_the_store_ends_what_markers_of_a_higher_one_began(
    start_node: StartNode, redis: RedisProcess, version: int
) -> None:
    """Partitions refuse the markers of a coordinator with a lower number than the last one's."""
    nodes, mover = await _prepared(start_node, version)
    past = Past(redis, ID, LOGS[1])
    ids = mover.coordinator.broker.transactions._ids
    for _ in range(5):
        (thing,) = ids.things.values()
        thing.doubt()
        await ids.look(thing.name)
    assert await mover.end(commit=True) == 0
    nodes = await after(nodes, start_node, past, node_dies=True)
    again = Mover(nodes, version=version)
    async with asyncio.timeout(20):
        await again.init_patiently()
    await _all_or_nothing(nodes, committed=True)
    assert await again.send(0, b"next") == 0
    assert await again.end(commit=True) == 0


@pytest.mark.parametrize("version", [1, 2])
async def test_the_last_verdict_is_not_taken_for_that_of_a_transaction_behind_it(
    start_node: StartNode, redis: RedisProcess, version: int
) -> None:
    nodes, mover = await _prepared(start_node, version)
    assert await mover.end(commit=True) == 0
    for number in range(PARTITIONS):
        assert await mover.send(number, b"open") == 0
    nodes = await after(nodes, start_node, Past(redis), node_dies=True)
    await _all_or_nothing(nodes, committed=True)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_batch_on_its_way_is_verified_again_if_the_store_forgot_that_its_partition_was_added(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Sent again as it was, it would be in no transaction that anybody ends."""
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    past, transmit = Past(redis, ID), LogWriter._transmit

    def lose(self: LogWriter, flight: Any, then: Any) -> None:
        monkeypatch.setattr(LogWriter, "_transmit", transmit)
        past.comes_back()
        raise StoreAway("the store was killed")

    monkeypatch.setattr(LogWriter, "_transmit", lose)
    sent = await mover.send(0, b"first")
    assert sent == (ErrorCode.NOT_ENOUGH_REPLICAS if version == 1 else ErrorCode.CONCURRENT_TRANSACTIONS)
    await mover.init_patiently()
    await until(is_stable(nodes))
    assert await mover.send(0, b"next") == 0
    assert await mover.end(commit=True) == 0
    assert await nodes.read(0) == [b"next"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_record_that_was_restored_ends_though_the_store_forgot_that_its_partition_was_added(
    start_node: StartNode, redis: RedisProcess, version: int
) -> None:
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    past = Past(redis, ID, *LOGS)
    assert await mover.send(0, b"first") == 0
    nodes = await after(nodes, start_node, past, node_dies=False)
    await mover.init_patiently()
    assert await mover.send(0, b"next") == 0
    assert await mover.end(commit=True) == 0
    await until(is_stable(nodes))
    assert await nodes.read(0) == [b"next"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_commit_that_only_markers_tell_of_does_not_commit_what_is_open_behind_them(
    start_node: StartNode, redis: RedisProcess, version: int
) -> None:
    nodes, mover = await _prepared(start_node, version)
    past = Past(redis, ID)
    assert await mover.end(commit=True) == 0
    assert await mover.send(1, b"open") == 0
    nodes = await after(nodes, start_node, past, node_dies=True)
    await _all_or_nothing(nodes, committed=True)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_producer_does_not_get_an_epoch_that_the_store_forgot(
    start_node: StartNode, redis: RedisProcess, version: int
) -> None:
    """Its first batch would be taken for the one that another producer began with."""
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    past = Past(redis, ID)
    assert [await mover.init(), await mover.init(), await mover.send(0, b"first")] == [0, 0, 0]
    nodes = await after(nodes, start_node, past, node_dies=True)
    again = Mover(nodes, version=version)
    await again.init_patiently()
    assert again.producer != mover.producer
    assert await again.send(0, b"next") == 0
    assert await again.end(commit=True) == 0
    await until(is_stable(nodes), 30)
    assert await nodes.read(0) == [b"next"]
