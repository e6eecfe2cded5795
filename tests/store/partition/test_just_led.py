"""A node that led for a moment knows records that the leader of before and after it has never seen.

If the store forgets them, it is the one that restores or reports them, although it does not lead any more.
"""

from __future__ import annotations

import pytest

from headrace.store.partition.base import Partition
from headrace.store.partition.losses import FIELDS, parse
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import CONFIGS, all_of, numbers, on, produce_each
from tests.store.produced import new_servers, produce, until, values
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Renewed by the tests alone."""
PARTITIONS = 16


@pytest.fixture
async def stores(open_store: OpenStore) -> list[Store]:
    stores = [await open_store(node_lease_ms=LEASE_MS) for _ in range(2)]
    for store in stores:
        await store.nodes.refresh()
    return stores


@pytest.fixture(params=CONFIGS)
async def led(request: pytest.FixtureRequest, stores: list[Store]) -> Partition:
    """A partition that node 0 leads beside node 1."""
    topic = await stores[0].default.catalogue.create("orders", PARTITIONS, request.param)
    number = next(number for number in range(PARTITIONS) if stores[0].nodes.leads(topic, number))
    return await stores[0].default.partition(topic, number)


async def lead_for_a_moment(valkey: Valkey, stores: list[Store], led: Partition) -> list[int]:
    """Node 1 leads instead, and gives offsets out that the store has lost when node 0 leads again."""
    first, second = stores
    await produce_each(led, 0, 5)
    checkpoint = valkey.checkpoint()
    valkey.ask("DEL", first.keys.node(0))
    await second.nodes.refresh()
    assert second.nodes.leads(led.topic, led.number)
    given_out = await produce_each(await on(second, led), 5, 10)
    await first.nodes.renew()
    await second.nodes.refresh()
    assert not second.nodes.leads(led.topic, led.number)
    async with new_servers(first, second):
        valkey.go_back_to(checkpoint)
    await produce(led, b"next")
    return given_out


async def test_what_only_the_leader_of_a_moment_ago_knows_is_reported_when_the_store_lost_it(
    valkey: Valkey, stores: list[Store], led: Partition
) -> None:
    given_out = await lead_for_a_moment(valkey, stores, led)

    def is_reported() -> bool:
        replaced = parse(valkey.ask("HMGET", led.keys.meta, *FIELDS)).replaced
        return all(any(lost.start <= offset < lost.end for lost in replaced) for offset in given_out)

    await until(is_reported)
    assert values(await all_of(led)) == [*numbers(0, 5), b"next"]


@pytest.mark.parametrize("led", CONFIGS[:1], indirect=True)  # streams have a margin that covers such a loss
async def test_an_epoch_that_rises_beside_the_leader_begins_behind_what_it_gave_out_meanwhile(
    valkey: Valkey, stores: list[Store], led: Partition, open_store: OpenStore
) -> None:
    """The leader goes on with the old epoch until it looks: consumers that have read that are not to start over."""
    first, second = stores
    await lead_for_a_moment(valkey, stores, led)
    other, before = await on(second, led), led.leader_epoch
    await until(lambda: other.leader_epoch > before)
    given_out, told = await produce(led, b"more"), led.leader_epoch
    for node in (first, second, await open_store(node_lease_ms=LEASE_MS)):
        partition = await on(node, led)
        await partition.confirm_end()
        assert partition.epoch_end(told)[1] > given_out.base_offset
