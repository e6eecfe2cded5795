"""The store forgets that a transaction was begun, and its producer goes on with it.

Continued it would be torn: what was acknowledged before would be in no transaction that anybody ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.store.redis.errors import StoreAway
from headrace.wire.errors import ErrorCode
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import PARTITIONS, TOPIC, Mover, Nodes, until
from tests.broker.transactions.test_lost_parts import ID, LOGS, Past, after, is_stable
from tests.broker_process import RedisProcess

LOSSES = {"the beginning": (ID,), "the beginning and the record": (ID, *LOGS)}
_RETRIED = (6, 15, 16, 19, 51, 56)


async def _finally(attempt: Callable[[], Awaitable[int]]) -> int:
    """Tried again as clients do."""
    async with asyncio.timeout(20):
        while (error := await attempt()) in _RETRIED:  # noqa: ASYNC110 - the state is elsewhere
            await asyncio.sleep(0.02)
    return error


async def _forget(
    start_node: StartNode, redis: RedisProcess, lost: str, *, version: int, node_dies: bool, has_committed: bool
) -> tuple[Nodes, Mover]:
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    if has_committed:
        assert await mover.send(2, b"before") == 0
        assert await mover.end(commit=True) == 0
    past = Past(redis, *LOSSES[lost])
    assert await mover.send(0, b"first") == 0
    mover.nodes = nodes = await after(nodes, start_node, past, node_dies)
    return nodes, mover


async def _is_aborted(nodes: Nodes, mover: Mover, *, has_committed: bool, goes_on: int | None) -> None:
    if goes_on is not None:
        await _finally(lambda: mover.send(goes_on, b"second"))
    assert await _finally(lambda: mover.end(commit=True)) in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    )
    await until(is_stable(nodes))
    read = [await nodes.read(number) for number in range(PARTITIONS)]
    assert read == [[], [], [b"before"] if has_committed else []]


@pytest.mark.parametrize(
    ("version", "node_dies", "lost"), [(1, False, "the beginning"), (2, True, "the beginning and the record")]
)
async def test_a_transaction_whose_beginning_the_store_forgot_cannot_be_committed(
    start_node: StartNode, redis: RedisProcess, lost: str, node_dies: bool, version: int
) -> None:
    nodes, mover = await _forget(start_node, redis, lost, version=version, node_dies=node_dies, has_committed=True)
    await _is_aborted(nodes, mover, has_committed=True, goes_on=1)


async def test_what_is_left_over_is_aborted_though_another_partition_cannot_be_read(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on a server that is away."""
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    other, mover = Mover(nodes, "other"), Mover(nodes)
    assert [await one.init() for one in (other, mover)] == [0, 0]
    assert await other.send(1, b"open") == 0
    past = Past(redis, *LOSSES["the beginning"])
    assert await mover.send(0, b"first") == 0
    topic = broker.store.default.catalogue.by_name[TOPIC]

    async def is_away() -> None:
        raise StoreAway

    monkeypatch.setattr(broker.store.default.opened[topic.uuid, 1], "confirm", is_away)
    nodes = await after(nodes, start_node, past, node_dies=False)

    async def is_ended() -> bool:
        try:
            return await nodes.end(0, 0) == await nodes.end(0, 1) > 1
        except AssertionError:
            return False  # the store is coming back

    await until(is_ended)
    assert await nodes.read(0) == []


@pytest.mark.faults
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("node_dies", [False, True])
@pytest.mark.parametrize("has_committed", [False, True])
@pytest.mark.parametrize("goes_on", [0, 1, None])
@pytest.mark.parametrize("lost", LOSSES)
async def test_however_it_goes_on_it_cannot_be_committed(
    start_node: StartNode,
    redis: RedisProcess,
    lost: str,
    goes_on: int | None,
    has_committed: bool,
    node_dies: bool,
    version: int,
) -> None:
    nodes, mover = await _forget(
        start_node, redis, lost, version=version, node_dies=node_dies, has_committed=has_committed
    )
    await _is_aborted(nodes, mover, has_committed=has_committed, goes_on=goes_on)


@pytest.mark.parametrize("version", [1, 2])
async def test_its_producer_takes_the_id_again_and_goes_on(
    start_node: StartNode, redis: RedisProcess, version: int
) -> None:
    """With an error that says so, neither Java's nor librdkafka's producer is lost."""
    nodes, mover = await _forget(
        start_node, redis, "the beginning", version=version, node_dies=False, has_committed=False
    )
    refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await _finally(lambda: mover.send(1, b"second")) == refused
    if version == 2:
        assert await mover.end(commit=False) == 0
    else:
        assert await mover.init(mover.producer) == 0
    assert await mover.send(0, b"again") == 0
    assert await mover.end(commit=True) == 0
    await until(is_stable(nodes))
    assert await nodes.read(0) == [b"again"]


async def test_its_producer_is_told_so_while_the_fence_is_being_stored(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the next epoch before this node knows that it has: replicas may take long to confirm it."""
    node = await start_node()
    nodes = Nodes(node)
    await nodes.create()
    mover = Mover(nodes, version=1)
    assert await mover.init() == 0
    past = Past(redis, ID)
    assert await mover.send(0, b"first") == 0
    store, is_stored, is_confirmed = node.store.transactions, asyncio.Event(), asyncio.Event()
    write = store.write

    async def write_slowly(*arguments: Any) -> None:
        await write(*arguments)
        is_stored.set()
        await is_confirmed.wait()

    monkeypatch.setattr(store, "write", write_slowly)
    await after(nodes, start_node, past, node_dies=False)
    await is_stored.wait()
    sending = asyncio.create_task(_finally(lambda: mover.send(1, b"second")))
    await asyncio.wait({sending}, timeout=0.2)
    is_confirmed.set()
    assert await sending == ErrorCode.INVALID_PRODUCER_ID_MAPPING
