"""The coordinator's node dies at every step of ending a transaction; the next owner does what was decided."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.broker import Broker
from headrace.broker.transactions.finishing import Finisher, _Marks
from headrace.store.cluster.owned.transactions import TransactionStore
from headrace.wire.errors import ErrorCode
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import PARTITIONS, Mover, Nodes, until
from tests.broker_process import RedisProcess


class Died(Exception):
    """This node does nothing any more."""


async def die(broker: Broker) -> None:
    """As after SIGKILL, as far as the store sees it: nothing is given back."""
    broker.stop()
    for task in list(broker.store._tasks):
        task.cancel()
    broker.store._tasks.clear()
    for link in [link for shard in broker.store.topology.shards for link in (shard.link, shard.reads)]:
        await link.close()


def never(*_: Any, **__: Any) -> Any:
    async def wait() -> None:
        await asyncio.Event().wait()

    return wait()


def stop_at(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From this step on nothing goes on."""
    if step == "before prepare":
        monkeypatch.setattr(TransactionStore, "write", never)
    elif step == "after prepare":
        monkeypatch.setattr(Finisher, "spread", never)
    elif step == "between markers":
        mark = _Marks._mark

        async def first_alone(self: _Marks, topic: Any, number: int) -> None:
            await (mark(self, topic, number) if number == 0 else never())

        monkeypatch.setattr(_Marks, "_mark", first_alone)
    elif step == "before verdicts":
        monkeypatch.setattr(TransactionStore, "give_verdict", never)
    elif step == "before complete":
        spread = Finisher.spread

        async def spread_and_stop(self: Finisher, thing: Any, ending: Any, *, again: bool) -> None:
            await spread(self, thing, ending, again=again)
            await never()

        monkeypatch.setattr(Finisher, "spread", spread_and_stop)


def hold_markers(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Markers are not written before this is set."""
    may_mark, spread = asyncio.Event(), Finisher.spread

    async def spread_later(self: Finisher, thing: Any, ending: Any, *, again: bool) -> None:
        await may_mark.wait()
        await spread(self, thing, ending, again=again)

    monkeypatch.setattr(Finisher, "spread", spread_later)
    return may_mark


STEPS = ("before prepare", "after prepare", "between markers", "before verdicts", "before complete")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("step", STEPS)
async def test_the_next_owner_does_what_was_decided(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, step: str, commit: bool, version: int
) -> None:
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    mover = Mover(nodes, version=version)
    assert await mover.init() == 0
    for number in range(PARTITIONS):
        assert await mover.send(number, b"%d" % number) == 0
    assert await mover.send_offsets("readers", 7) == 0
    with monkeypatch.context() as patched:
        stop_at(step, patched)
        ending = asyncio.create_task(mover.end(commit=commit))
        await asyncio.sleep(0.3)
        await die(broker)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    after = Nodes(await start_node())
    assert await nodes_state(after, "mover") in (
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    )
    if step == "before prepare":
        again = Mover(after, version=version)
        await again.init_patiently()  # its producer starts anew: what it had left open is aborted
    await until(after.is_stable)
    is_there = commit and step != "before prepare"
    for number in range(PARTITIONS):
        assert await after.read(number) == ([b"%d" % number] if is_there else [])
    assert await settled(after) == (0, 7 if is_there else -1)


async def nodes_state(nodes: Nodes, name: str) -> str:
    shown = await nodes.owner(name).broker.transactions.find("default", name)
    assert shown is not None
    return shown.state.value


async def settled(nodes: Nodes) -> tuple[int, int]:
    async def is_settled() -> bool:
        return (await nodes.committed("readers"))[0] == 0

    await until(is_settled)
    return await nodes.committed("readers")


async def test_a_store_that_restarts_aborts_what_is_open_and_keeps_what_was_committed(
    start_node: StartNode, redis: RedisProcess
) -> None:
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    mover = Mover(nodes)
    assert await mover.init() == 0
    assert await mover.send(0, b"kept") == 0
    assert await mover.end(commit=True) == 0
    assert await mover.send(0, b"dropped") == 0
    redis.stop()
    redis.start()

    async def is_back() -> bool:
        return broker.store.is_up and await nodes.is_stable()

    await until(is_back)
    assert await nodes.read(0) == [b"kept"]
    assert await mover.end(commit=True) == 48
    assert await mover.init(mover.producer) == 0
    assert await mover.send(0, b"next") == 0
    assert await mover.end(commit=True) == 0
    assert await nodes.read(0) == [b"kept", b"next"]


async def test_an_id_is_free_again_after_nodes_and_store_were_restarted_though_nobody_reads_its_partitions(
    start_node: StartNode, redis: RedisProcess
) -> None:
    """Its verdict goes again to logs of the other node, which opens a log that was left in good order when asked."""
    brokers = [await start_node(1), await start_node(2)]
    nodes = Nodes(*brokers)
    await nodes.create()
    mover = Mover(nodes)
    await mover.init_patiently()
    for number in range(PARTITIONS):
        assert await mover.send(number, b"kept") == 0
    assert await mover.end(commit=True) == 0
    assert len({(await nodes.leader(number)).broker for number in range(PARTITIONS)}) == 2
    for broker in brokers:
        broker.stop()
        await broker.store.close()
    redis.stop()
    redis.start()
    nodes = Nodes(*await asyncio.gather(start_node(1), start_node(2)))
    mover = Mover(nodes)
    async with asyncio.timeout(20):
        await mover.init_patiently()
    assert [await nodes.read(number) for number in range(PARTITIONS)] == [[b"kept"]] * PARTITIONS


async def test_an_id_that_another_node_took_in_passing_is_taken_back_and_its_transaction_finished(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that starts takes all ids until it knows the others; whose id it is knows nothing of that."""
    broker, other = await start_node(1), await start_node(2)
    nodes = Nodes(broker, other)
    await nodes.create()
    mover = Mover(nodes)
    await mover.init_patiently()
    passing = other if mover.coordinator.broker is broker else broker
    spread, taken = Finisher.spread, 0

    async def take_then_spread(self: Finisher, thing: Any, ending: Any, *, again: bool) -> None:
        nonlocal taken
        if not taken:
            taken += 1
            await passing.store.transactions.take("default", mover.name)
        await spread(self, thing, ending, again=again)

    monkeypatch.setattr(Finisher, "spread", take_then_spread)
    for number in range(PARTITIONS):
        assert await mover.send(number, b"kept") == 0
    assert await mover.end(commit=True) == 0
    async with asyncio.timeout(20):
        await mover.init_patiently()
    assert taken
    assert [await nodes.read(number) for number in range(PARTITIONS)] == [[b"kept"]] * PARTITIONS


async def test_the_next_transaction_does_not_begin_in_a_partition_before_the_marker_of_the_last_one(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EndTxn is answered before slow markers are written; what follows must not be taken for what they end."""
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes)
    assert await mover.init() == 0
    assert await mover.send(0, b"committed") == 0
    may_mark = hold_markers(monkeypatch)
    assert await mover.end(commit=True) == 0
    assert await mover.send(0, b"aborted") == ErrorCode.CONCURRENT_TRANSACTIONS
    may_mark.set()
    await until(nodes.is_stable)
    assert await mover.send(0, b"aborted") == 0
    assert await mover.end(commit=False) == 0
    await until(nodes.is_stable)
    assert await nodes.read(0) == [b"committed"]


@pytest.mark.parametrize("commit", [True, False])
async def test_in_version_1_a_batch_before_the_marker_is_part_of_what_it_ends_and_one_behind_it_is_refused(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """As in Kafka: in a partition only the marker ends a transaction, and the epoch does not tell."""
    nodes = Nodes(await start_node())
    await nodes.create()
    mover = Mover(nodes, version=1)
    assert await mover.init() == 0
    assert await mover.send(0, b"in time") == 0
    may_mark = hold_markers(monkeypatch)
    assert await mover.end(commit=commit) == 0
    assert await mover.append(0, b"before the marker") == 0
    may_mark.set()
    await until(nodes.is_stable)
    assert await mover.append(0, b"behind it") == ErrorCode.TRANSACTION_ABORTABLE
    assert await nodes.read(0) == ([b"in time", b"before the marker"] if commit else [])
    assert await nodes.read(0, 0) == [b"in time", b"before the marker"]
