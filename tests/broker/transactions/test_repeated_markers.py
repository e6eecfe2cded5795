"""The markers of a transaction are written again after the next one has begun: they end nothing of it.

The store may lose that a transaction was finished, or its owner may not learn that this was stored. By then others have
seen it, and the next transaction has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.transactions.finishing import Finisher
from headrace.store.cluster.owned.things import Changes
from headrace.store.cluster.owned.transactions import TransactionStore
from headrace.store.redis.copied_writes import NotConfirmed
from headrace.wire.errors import ErrorCode
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import PARTITIONS, Mover, Nodes, until
from tests.broker.transactions.test_lost_parts import ID, Past, is_stable
from tests.broker.transactions.test_steps import die, hold_markers, nodes_state
from tests.broker_process import RedisProcess


class Unconfirmed:
    """The first write that finishes a transaction is made, and confirmed by too few replicas."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails, self.written = asyncio.Event(), 0
        write = TransactionStore.write

        async def write_unconfirmed(store: TransactionStore, *arguments: Any) -> None:
            changes: Changes = arguments[-1]
            await write(store, *arguments)
            if (changes.fields.get("state") or b"").startswith(b"Complete"):
                self.written += 1
                if self.written == 1:
                    await self.fails.wait()
                    raise NotConfirmed

        monkeypatch.setattr(TransactionStore, "write", write_unconfirmed)

    async def is_repeated(self) -> bool:
        return self.written == 2


async def _two_nodes(start_node: StartNode) -> Nodes:
    nodes = Nodes(await start_node(1), await start_node(2))
    await nodes.create()
    return nodes


async def _begin(nodes: Nodes, version: int) -> Mover:
    mover = Mover(nodes, version=version)
    await mover.init_patiently()
    leaders = {(await nodes.leader(number)).broker for number in range(PARTITIONS)}
    assert len(leaders) == len(nodes.clients)
    await _send(mover, b"first")
    return mover


async def _send(mover: Mover, value: bytes) -> None:
    for number in range(PARTITIONS):
        assert await mover.send(number, value) == 0


async def _are_read(nodes: Nodes, *values: bytes) -> None:
    await until(is_stable(nodes), 30)
    assert [await nodes.read(number) for number in range(PARTITIONS)] == [list(values)] * PARTITIONS


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
async def test_an_owner_that_finishes_a_transaction_again_does_not_end_the_next_one(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, commit: bool, version: int
) -> None:
    nodes = await _two_nodes(start_node)
    mover = await _begin(nodes, version)
    unconfirmed = Unconfirmed(monkeypatch)
    assert await mover.end(commit=commit) == 0
    await _send(mover, b"second")
    ends = [await nodes.end(number, 0) for number in range(PARTITIONS)]
    unconfirmed.fails.set()
    await until(unconfirmed.is_repeated)
    assert [await nodes.end(number, 0) for number in range(PARTITIONS)] == ends
    assert [await nodes.end(number, 1) for number in range(PARTITIONS)] == [end - 1 for end in ends]
    await _send(mover, b"more")
    assert await mover.end(commit=not commit) == 0
    await _are_read(nodes, *([b"first"] if commit else [b"second", b"more"]))


async def test_an_owner_that_finishes_what_it_decided_does_not_read_the_partitions_of_other_nodes(
    start_node: StartNode,
) -> None:
    """It would read all that is written to them."""
    nodes = await _two_nodes(start_node)
    mover = await _begin(nodes, version=2)
    assert await mover.end(commit=True) == 0
    await _are_read(nodes, b"first")
    store = mover.coordinator.broker.store
    assert all(store.nodes.leads(opened.topic, opened.number) for opened in store.default.partitions)


def _hold_completion(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    may_finish, finish = asyncio.Event(), Finisher._mark_finished

    async def finish_later(self: Finisher, *arguments: Any) -> None:
        await may_finish.wait()
        await finish(self, *arguments)

    monkeypatch.setattr(Finisher, "_mark_finished", finish_later)
    return may_finish


async def _forgets_completion(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, ...], version: int
) -> tuple[Mover, asyncio.Event]:
    """The store loses that a transaction was finished, and that the next one was begun; not the records of that one.

    It is not finished again before the event is set.
    """
    nodes = Nodes(*[await start_node(node_id) for node_id in ids])
    await nodes.create()
    mover = await _begin(nodes, version)
    may_finish = _hold_completion(monkeypatch)
    assert await mover.end(commit=True) == 0
    past = Past(redis, ID)
    may_finish.set()
    await until(_in_state(nodes, "CompleteCommit"))
    await _send(mover, b"second")
    may_finish.clear()
    for client in nodes.clients.values():
        await die(client.broker)
    await asyncio.to_thread(past.comes_back)
    mover.nodes = Nodes(*await asyncio.gather(*(start_node(node_id) for node_id in ids)))
    return mover, may_finish


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("ids", [(1,), (1, 2)], ids=["one node", "two nodes"])
async def test_the_next_owner_finishes_a_transaction_again_and_does_not_end_the_next_one(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, ...], version: int
) -> None:
    mover, may_finish = await _forgets_completion(start_node, redis, monkeypatch, ids, version)
    may_finish.set()
    await _are_read(mover.nodes, b"first")


def _in_state(nodes: Nodes, state: str) -> Callable[[], Any]:
    async def is_so() -> bool:
        return await nodes_state(nodes, "mover") == state

    return is_so


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
async def test_the_next_transaction_cannot_be_ended_while_the_last_one_is_finished_again(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, commit: bool, version: int
) -> None:
    """Its producer did nothing wrong: it tries again."""
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = await _begin(nodes, version)
    unconfirmed = Unconfirmed(monkeypatch)
    assert await mover.end(commit=commit) == 0
    await _send(mover, b"second")
    may_mark = hold_markers(monkeypatch)
    unconfirmed.fails.set()
    assert await mover.end(commit=not commit) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await nodes_state(nodes, "mover")).startswith("Prepare")
    may_mark.set()
    await until(unconfirmed.is_repeated)
    assert await mover.end(commit=not commit) == 0
    await _are_read(nodes, b"first" if commit else b"second")


@pytest.mark.parametrize(("version", "told"), [(1, ErrorCode.INVALID_PRODUCER_ID_MAPPING), (2, ErrorCode.NONE)])
async def test_a_transaction_whose_beginning_the_store_forgot_is_aborted_once_the_last_one_is_finished_again(
    start_node: StartNode, redis: RedisProcess, monkeypatch: pytest.MonkeyPatch, version: int, told: ErrorCode
) -> None:
    """Its producer is told to go on then, and not before that it is fenced."""
    mover, may_finish = await _forgets_completion(start_node, redis, monkeypatch, (1,), version)
    assert await nodes_state(mover.nodes, "mover") == "PrepareCommit"
    assert await mover.end(commit=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    may_finish.set()
    await until(_in_state(mover.nodes, "CompleteAbort"))
    assert await mover.end(commit=False) == told
    await _are_read(mover.nodes, b"first")
