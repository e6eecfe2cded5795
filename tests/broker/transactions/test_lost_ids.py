"""The store loses a transactional id that no node has in memory any more: nobody is left to end its transaction.

An owner lets an id go, and the store is lost before the next owner has read it.
"""

from __future__ import annotations

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.owned.contract import Name
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import Mover, Nodes, until
from tests.broker.transactions.test_lost_parts import ID, Past, is_stable
from tests.broker.transactions.test_steps import settled
from tests.broker_process import RedisProcess


async def _forget(broker: Broker, past: Past) -> None:
    broker.transactions._ids.things[Name("default", "mover")].drop()
    await asyncio.to_thread(past.comes_back)
    await until(lambda: _is_up(broker))


async def _is_up(broker: Broker) -> bool:
    return broker.store.is_up


async def test_what_is_open_under_an_id_that_nobody_knows_is_aborted(
    start_node: StartNode, redis: RedisProcess
) -> None:
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    past, mover, other = Past(redis, ID), Mover(nodes), Mover(nodes, "other")
    assert [await one.init() for one in (mover, other)] == [0, 0]
    assert await mover.send(0, b"lost") == 0
    await _forget(broker, past)
    await other.init_patiently()
    assert await other.send(0, b"kept") == 0
    assert await other.end(commit=True) == 0
    await until(is_stable(nodes))
    assert await nodes.read(0) == [b"kept"]


async def test_offsets_of_a_transaction_that_its_id_made_anew_does_not_know_are_dropped(
    start_node: StartNode, redis: RedisProcess
) -> None:
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    past, mover = Past(redis, ID), Mover(nodes)
    assert await mover.init() == 0
    assert await mover.send_offsets("readers", 7) == 0
    await _forget(broker, past)
    again = Mover(nodes)
    await again.init_patiently()
    assert again.producer[0] != mover.producer[0]
    assert await settled(nodes) == (0, -1)


async def test_offsets_of_a_transaction_that_its_id_forgot_are_dropped(
    start_node: StartNode, redis: RedisProcess
) -> None:
    """The id is older than the group: its next transactions have lower numbers."""
    broker = await start_node()
    nodes = Nodes(broker)
    await nodes.create()
    mover = Mover(nodes)
    assert await mover.init() == 0
    past = Past(redis, ID)
    assert await mover.send(0, b"lost") == 0
    assert await mover.end(commit=True) == 0
    assert await mover.send_offsets("readers", 7) == 0
    await _forget(broker, past)
    assert await settled(nodes) == (0, -1)
