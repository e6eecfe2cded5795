"""Adding to a transaction at a node that no longer owns its id, which a client may ask until it hears of the next one.

librdkafka ends a transaction in which nothing but that was tried with an EndTxn, and is told 48, as Kafka would: fatal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tests.broker.rights.caller import Client
from tests.broker.transactions.conftest import StartNode
from tests.broker.transactions.producing import TOPIC, Mover, Nodes, until

Add = Callable[[Mover, Client, int], Awaitable[int]]


async def _two(start_node: StartNode) -> tuple[Mover, Client]:
    """A producer, and the node that does not own its id."""
    brokers = [await start_node(0), await start_node(1)]

    async def know_each_other() -> bool:
        return all(len(broker.store.nodes.live) == len(brokers) for broker in brokers)

    await until(know_each_other)
    nodes = Nodes(*brokers)
    await nodes.create()
    mover = Mover(nodes, version=1)
    await mover.init_patiently()
    return mover, next(client for client in nodes.clients.values() if client is not mover.coordinator)


async def _add(mover: Mover, at: Client, epoch: int) -> int:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=mover.name,
        v3_and_below_producer_id=mover.producer[0],
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(TOPIC, [0])],
    )
    code: int = (await at.ask(request, 3)).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


async def _add_group(mover: Mover, at: Client, epoch: int) -> int:
    code: int = (await at.ask(AddOffsetsToTxnRequest(mover.name, mover.producer[0], epoch, "readers"), 3)).error_code
    return code


@pytest.mark.parametrize("add", [_add, _add_group])
async def test_it_counts_at_any_node(start_node: StartNode, add: Add) -> None:
    mover, other = await _two(start_node)
    assert await add(mover, other, mover.producer[1]) == ErrorCode.NONE
    assert await mover.end(commit=False) == ErrorCode.NONE


@pytest.mark.parametrize("add", [_add, _add_group])
async def test_only_the_owner_refuses(start_node: StartNode, add: Add) -> None:
    mover, other = await _two(start_node)
    older = mover.producer[1]
    await mover.init_patiently()
    assert await add(mover, other, older) == ErrorCode.NOT_COORDINATOR
    assert await add(mover, mover.coordinator, older) == ErrorCode.PRODUCER_FENCED


async def test_an_id_that_moves_is_let_go_as_soon_as_its_next_owner_is_seen(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the next round of its upkeep: until then its next owner may ask for what is not written yet."""
    monkeypatch.setattr("headrace.broker.owned.upkeep._EVERY_S", 3600.0)
    first = await start_node(0)
    nodes = Nodes(first)
    movers = [Mover(nodes, str(at)) for at in range(16)]
    for mover in movers:
        assert await mover.init() == 0
    await start_node(1)

    async def are_let_go() -> bool:
        kept = first.transactions.ids_of("default")
        return len(first.store.nodes.live) == 2 and set(kept) == {
            mover.name for mover in movers if first.store.nodes.owner(mover.name.encode()).id == 0
        }

    await until(are_let_go)
