"""Nodes that were all stopped while the store went back: what any of them acknowledged is lost, and each knows it.

A node that wakes up looks at its partitions before it has its lease again. Who led meanwhile it learns only then.
"""

from __future__ import annotations

import pytest

from headrace.store.partition.base import Partition
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of, numbers, on, produce_each
from tests.store.partition.test_losses import go_back
from tests.store.partition.test_origin import crash
from tests.store.produced import cut_off, new_servers, produce, values
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

LEASE_MS = 60_000
"""Renewed by the tests alone."""


@pytest.fixture(params=[{}, {"headrace.format": "stream"}], ids=["log", "stream"])
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def stores(open_store: OpenStore, proxy: Proxy) -> list[Store]:
    """Node 0, which can be cut off, and node 1."""
    ways = [proxy, None]
    stores = [await open_store(node_id=at, via=way, node_lease_ms=LEASE_MS) for at, way in enumerate(ways)]
    for store in stores:
        await store.nodes.refresh()
    return stores


@pytest.fixture
async def led(stores: list[Store], configs: dict[str, str]) -> Partition:
    """A partition that node 0 leads beside node 1."""
    catalogue, nodes = stores[0].default.catalogue, stores[0].nodes
    topic = await catalogue.create("orders", 16, configs)
    number = next(number for number in range(16) if nodes.leads(topic, number))
    return await stores[0].default.partition(topic, number)


async def stop(valkey: Valkey, stopped: Store, other: Store) -> None:
    """The node's lease runs out, and the other one leads; the node does not hear of what that appends."""
    await stopped.announcements.close()
    valkey.ask("DEL", stopped.keys.node(stopped.nodes.me.id))
    await other.nodes.refresh()


async def wake_up(store: Store, clock: MovableClock) -> None:
    """The node has its lease again, and serves."""
    for _ in range(8):
        await store.nodes.renew()
        clock.advance(LEASE_MS // 4)
    await store.nodes.renew()
    assert store.nodes.lease_is_valid
    assert not store.nodes.has_overslept


async def code_of(partition: Partition, sequence: int) -> ErrorCode:
    try:
        await produce(partition, b"%d" % sequence, producer=7, sequence=sequence)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_a_node_that_looks_before_it_knows_that_it_was_replaced_leaves_out_what_others_may_have_given_out(
    valkey: Valkey, clock: MovableClock, stores: list[Store], led: Partition
) -> None:
    first, second = stores
    await produce_each(led, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(led, 5, 7)
    await stop(valkey, first, second)
    other = await on(second, led)
    await produce_each(other, 7, 10)
    await crash(second)
    await go_back(valkey, checkpoint, first)
    valkey.ask("DEL", *(first.keys.node(number) for number in range(2)))
    clock.advance(2 * LEASE_MS)
    await led.confirm()
    assert led.leader_epoch == 0, "others may have been awake"
    await wake_up(first, clock)
    assert await code_of(led, 10) is ErrorCode.KAFKA_STORAGE_ERROR
    clock.advance(LEASE_MS)
    await first.nodes.renew()
    assert await code_of(led, 10) is ErrorCode.NONE
    assert (led.leader_epoch, values(await all_of(led))) == (1, [*numbers(0, 7), b"10"])
    assert led.end > other.end


async def test_a_node_that_saw_no_other_one_when_it_was_stopped_may_have_been_replaced(
    valkey: Valkey, clock: MovableClock, proxy: Proxy, stores: list[Store], led: Partition
) -> None:
    """The other one was stopped before, and woke up while this one was."""
    first, second = stores
    await produce_each(led, 0, 5)
    await stop(valkey, second, first)
    assert first.nodes.is_alone
    await led.confirm()
    checkpoint = valkey.checkpoint()
    async with new_servers(first):
        await cut_off(first, proxy)
        valkey.ask("DEL", first.keys.node(0))
        await second.nodes.renew()
        other = await on(second, led)
        await produce_each(other, 5, 10)
        await crash(second)
        valkey.go_back_to(checkpoint)
        valkey.ask("DEL", *(first.keys.node(number) for number in range(2)))
        proxy.is_open = True
    await first.leases.wait_up(20)
    clock.advance(2 * LEASE_MS)
    await wake_up(first, clock)
    assert (await produce(led, b"next")).base_offset >= other.end
    assert (led.leader_epoch, values(await all_of(led))) == (1, [*numbers(0, 5), b"next"])


async def test_a_node_that_was_awake_knows_that_another_one_led_before_the_store_went_back(
    valkey: Valkey, clock: MovableClock, stores: list[Store], led: Partition
) -> None:
    """The other one led for a moment, and died with the store; the store knows nothing of it."""
    first, second = stores
    await stop(valkey, second, first)
    topic = led.topic
    number = next(number for number in range(16) if second.nodes.leads(topic, number) and number != led.number)
    moved = await first.default.partition(topic, number)
    await produce_each(moved, 0, 5)
    checkpoint = valkey.checkpoint()
    await second.nodes.renew()
    await first.nodes.refresh()
    assert not first.nodes.leads(topic, number)
    other = await on(second, moved)
    await produce_each(other, 5, 10)
    await crash(second)
    await go_back(valkey, checkpoint, first)
    valkey.ask("DEL", first.keys.node(1))
    await first.nodes.renew()
    for _ in range(5):
        clock.advance(LEASE_MS // 4)
        await first.nodes.renew()
    assert first.nodes.leads(topic, number)
    assert (await produce(moved, b"next")).base_offset >= other.end
    assert (moved.leader_epoch, values(await all_of(moved))) == (1, [*numbers(0, 5), b"next"])


async def test_a_batch_that_was_queued_when_a_node_was_stopped_is_not_appended_before_it_knows_who_led(
    valkey: Valkey, clock: MovableClock, stores: list[Store], led: Partition
) -> None:
    first, second = stores
    await produce_each(led, 0, 5)
    checkpoint = valkey.checkpoint()
    await stop(valkey, first, second)
    other = await on(second, led)
    await produce_each(other, 5, 10)
    await crash(second)
    await go_back(valkey, checkpoint, first)
    valkey.ask("DEL", *(first.keys.node(number) for number in range(2)))
    clock.advance(2 * LEASE_MS)
    with pytest.raises(KafkaError) as raised:
        await produce(led, b"queued", timeout_s=1)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await wake_up(first, clock)
    assert (await produce(led, b"next")).base_offset >= other.end
    assert values(await all_of(led)) == [*numbers(0, 5), b"next"]
