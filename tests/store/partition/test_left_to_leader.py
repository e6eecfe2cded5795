"""A loss is the leader's to make good: a node that only looks has no copy of what is missing, and takes no place of it.

Nodes look at partitions of others all the time: for the mirrors of groups, for the sizes of log dirs.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from headrace.store.partition.base import Partition
from headrace.store.redis.errors import LeftToLeader
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import CONFIGS, all_of, numbers, on, produce_each
from tests.store.partition.test_restarts import another_server
from tests.store.produced import produce, store_of, values
from tests.store.servers import Valkey


class Shared(NamedTuple):
    """A partition with five records at the node that leads it, and another node."""

    led: Partition
    other: Store


@pytest.fixture(params=CONFIGS)
async def shared(request: pytest.FixtureRequest, store: Store, open_store: OpenStore) -> Shared:
    both = [store, await open_store()]
    await store.nodes.refresh()
    topic = await store.default.catalogue.create("orders", 1, request.param)
    leader, other = sorted(both, key=lambda one: one.nodes.me != store.nodes.leader(topic, 0))
    await leader.default.catalogue.find("orders")
    led = await leader.default.partition(topic, 0)
    await produce_each(led, 0, 5)
    return Shared(led, other)


async def test_a_log_that_is_deleted_is_made_again_by_its_leader_alone(valkey: Valkey, shared: Shared) -> None:
    led, seen = shared.led, await on(shared.other, shared.led)
    before = await all_of(led)
    valkey.ask("DEL", led.keys.log)
    seen.doubt()
    with pytest.raises(LeftToLeader):
        await seen.confirm()
    led.doubt()
    assert await all_of(led) == before
    await produce(led, b"5", producer=7, sequence=5)
    for partition in (led, seen):
        assert values(await all_of(partition)) == numbers(0, 6)
        assert (partition.gaps, partition.leader_epoch) == ([], 0)


async def test_a_node_that_never_saw_a_deleted_log_leaves_it_to_the_leader(valkey: Valkey, shared: Shared) -> None:
    valkey.ask("DEL", shared.led.keys.log)
    with pytest.raises(LeftToLeader):
        await on(shared.other, shared.led)
    shared.led.doubt()
    assert values(await all_of(shared.led)) == numbers(0, 5)
    assert shared.led.gaps == []


async def test_what_a_store_lost_is_not_given_up_by_a_node_that_only_saw_it(valkey: Valkey, shared: Shared) -> None:
    led, seen = shared.led, await on(shared.other, shared.led)
    checkpoint = valkey.checkpoint()
    await produce_each(led, 5, 9)
    await seen.confirm_up_to(led.end)
    seen.tail.clear()
    async with another_server(store_of(led), shared.other):
        valkey.go_back_to(checkpoint)
    with pytest.raises(LeftToLeader):
        await seen.confirm()
    await led.confirm()
    await produce(led, b"9", producer=7, sequence=9)
    for partition in (led, seen):
        assert values(await all_of(partition)) == numbers(0, 10)
        assert (partition.gaps, partition.leader_epoch) == ([], 0)


async def test_a_loss_that_the_leader_noted_is_known_to_the_others(valkey: Valkey, shared: Shared) -> None:
    led, seen = shared.led, await on(shared.other, shared.led)
    checkpoint = valkey.checkpoint()
    await produce_each(led, 5, 9)
    await seen.confirm_up_to(led.end)
    for partition in (led, seen):
        partition.tail.clear()
    async with another_server(store_of(led), shared.other):
        valkey.go_back_to(checkpoint)
    await led.confirm()
    await seen.confirm()
    await produce(led, b"next")
    for partition in (led, seen):
        assert values(await all_of(partition)) == [*numbers(0, 5), b"next"]
        assert (len(partition.gaps), partition.leader_epoch) == (1, 1)


async def test_a_node_that_leads_since_another_left_makes_a_deleted_log_again(valkey: Valkey, shared: Shared) -> None:
    """Nobody has a copy: what was there is gone, the offsets are not used again."""
    seen, end = await on(shared.other, shared.led), shared.led.end
    await store_of(shared.led).close()
    valkey.ask("DEL", seen.keys.log)
    await seen.nodes.refresh()
    appended = await produce(seen, b"next")
    assert appended.base_offset >= end
