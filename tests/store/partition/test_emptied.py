"""A store that lost everything: a node whose cache is of an earlier leadership does not take it for all that was there.

An older store still says who led last. An empty one does not: the node itself has to know that others led meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from headrace.store.cluster.identity import kafka_uuid, new_id
from headrace.store.partition.base import Partition
from headrace.store.redis.errors import LeftToLeader
from headrace.store.store import Store
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of, numbers, on, produce_each
from tests.store.partition.test_losses import go_back, made_for
from tests.store.partition.test_origin import refused_for_now
from tests.store.produced import cut_off, new_servers, produce, store_of, until, values
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

NODE, OTHER = 0, 1
LEASE_MS = 2_000
STREAM = {"headrace.format": "stream"}


@pytest.fixture(params=[{}, STREAM], ids=["log", "stream"])
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


class Moved(NamedTuple):
    """A partition that moved to another node and back, which its present leader has not noticed yet."""

    mine: Partition
    theirs: Partition
    """As the other node knows it: five records of the first node, five of its own. It is cut off."""
    given_out: list[int]


async def move(valkey: Valkey, open_store: OpenStore, proxy: Proxy, configs: dict[str, str], first: int) -> Moved:
    store = await open_store(node_id=NODE, node_lease_ms=LEASE_MS)
    mine = await made_for(OTHER, open_store, store, configs)
    given_out = await produce_each(mine, 0, first)
    other = await open_store(node_id=OTHER, via=proxy, node_lease_ms=LEASE_MS)
    theirs = await on(other, mine)
    given_out += await produce_each(theirs, first, 10)
    await store.nodes.refresh()
    await cut_off(other, proxy)
    valkey.ask("DEL", store.keys.node(OTHER))
    await store.nodes.refresh()
    assert store.nodes.is_alone
    return Moved(mine, theirs, given_out)


async def empty(valkey: Valkey, store: Store) -> None:
    """All keys are gone, and another server answers."""
    valkey.ask("FLUSHALL")
    await go_back(valkey, valkey.checkpoint(), store)


def reported(partition: Partition) -> set[range]:
    return {range(gap.start, gap.end) for gap in (*partition.gaps, *partition.replaced)}


@pytest.mark.parametrize("is_restarted", [True, False], ids=["another server", "keys deleted"])
@pytest.mark.parametrize("first", [0, 5])
async def test_offsets_that_another_leader_gave_out_are_left_out_and_reported(
    valkey: Valkey,
    open_store: OpenStore,
    proxy: Proxy,
    clock: MovableClock,
    configs: dict[str, str],
    first: int,
    is_restarted: bool,
) -> None:
    mine, _, given_out = await move(valkey, open_store, proxy, configs, first)
    if is_restarted:
        await empty(valkey, store_of(mine))
    else:
        valkey.ask("DEL", mine.keys.log, *mine.keys.all())
    await mine.confirm()
    assert mine.end > given_out[-1]
    assert all(any(offset in lost for lost in reported(mine)) for offset in given_out[first:])
    assert mine.leader_epoch == 1
    assert store_of(mine).events["gaps"] == 1
    assert await refused_for_now(mine)
    clock.advance(60_000)  # until clients give up what they sent to the other one
    await store_of(mine).nodes.renew()

    async def goes_on() -> bool:  # its producer had sequences up to 9 acknowledged
        return not await refused_for_now(mine)

    await until(goes_on)
    await produce(mine, b"11", producer=7, sequence=11)
    assert values(await all_of(mine)) == [*numbers(0, first), b"10", b"11"]


def give_to_deleted_topic(valkey: Valkey, partition: Partition) -> None:
    """The store is from before the topic: it has the stream of one of this name that was deleted."""
    deleted = msgspec.structs.replace(partition.topic, id=kafka_uuid(new_id(0)))
    valkey.ask("DEL", partition.keys.log, *partition.keys.all())
    valkey.ask("XADD", partition.keys.log, "1-1", "value", "old")
    valkey.ask("SET", partition.keys.owner, deleted.id)
    deleted_topics = store_of(partition).default.keys.deleted_topics
    valkey.ask("HSET", deleted_topics, deleted.id, msgspec.json.encode(deleted))


async def test_they_are_left_out_too_where_the_store_has_the_stream_of_a_deleted_topic_of_this_name(
    valkey: Valkey, open_store: OpenStore, proxy: Proxy
) -> None:
    mine, _, given_out = await move(valkey, open_store, proxy, STREAM, 5)
    give_to_deleted_topic(valkey, mine)
    assert values(await all_of(mine)) == numbers(0, 5)
    assert mine.end > given_out[-1]
    assert all(any(offset in lost for lost in reported(mine)) for offset in given_out[5:])


async def test_a_node_that_knows_no_record_leaves_out_what_may_have_been_given_out_there(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    before = await store.default.partition(await store.default.catalogue.create("orders", 1, STREAM), 0)
    given_out = await produce_each(before, 0, 5)
    await store.close()
    give_to_deleted_topic(valkey, before)
    now = await on(await open_store(), before)
    assert values(await all_of(now)) == []
    assert now.end > given_out[-1]
    assert all(any(offset in lost for lost in reported(now)) for offset in given_out)


async def test_a_stream_that_is_still_there_has_lost_nothing_with_its_meta(
    valkey: Valkey, open_store: OpenStore, proxy: Proxy
) -> None:
    mine, _, _ = await move(valkey, open_store, proxy, STREAM, 5)
    valkey.ask("DEL", mine.keys.meta)
    assert values(await all_of(mine)) == numbers(0, 10)
    assert (mine.gaps, mine.leader_epoch) == ([], 0)


@pytest.mark.parametrize(("configs", "first"), [({}, 5), (STREAM, 0), (STREAM, 5)], indirect=["configs"])
async def test_the_other_leader_says_which_records_nobody_can_restore(
    valkey: Valkey, open_store: OpenStore, proxy: Proxy, configs: dict[str, str], first: int
) -> None:
    mine, theirs, given_out = await move(valkey, open_store, proxy, configs, first)
    async with new_servers(store_of(theirs)):
        await empty(valkey, store_of(mine))
        await produce(mine, b"next")
        proxy.is_open = True
    await store_of(theirs).leases.wait_up(20)
    await store_of(theirs).nodes.renew()
    await theirs.confirm()
    assert store_of(theirs).events["replaced"] == 1
    [lost] = theirs.replaced
    assert lost.start <= given_out[first]
    assert lost.end > given_out[-1]
    assert values(await all_of(theirs)) == [*numbers(0, first), b"next"]


async def led_by(store: Store, configs: dict[str, str]) -> Partition:
    """A partition with five records that a node leads, whoever else is there."""
    await store.nodes.refresh()
    topic = await store.default.catalogue.create("orders", 1, configs)
    while store.nodes.leader(topic, 0) != store.nodes.me:
        await store.default.catalogue.delete(topic)
        topic = await store.default.catalogue.create("orders", 1, configs)
    led = await store.default.partition(topic, 0)
    await produce_each(led, 0, 5)
    return led


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "one of two"])
async def test_a_node_that_slept_past_its_lease_leaves_offsets_out_if_others_may_have_led(
    valkey: Valkey, open_store: OpenStore, clock: MovableClock, configs: dict[str, str], is_alone: bool
) -> None:
    store = await open_store(node_id=NODE)
    if not is_alone:
        await open_store(node_id=OTHER)
    mine = await led_by(store, configs)
    clock.advance(2 * store.options.node_lease_ms)
    await empty(valkey, store)

    async def is_restored() -> bool:
        try:
            await mine.confirm()
        except LeftToLeader:
            return False
        return True

    await until(is_restored)
    assert len(mine.gaps) == (0 if is_alone else 1)
    assert values(await all_of(mine)) == numbers(0, 5)


async def test_a_node_that_led_all_along_restores_all_of_it_whoever_came_and_went(
    valkey: Valkey, open_store: OpenStore, configs: dict[str, str]
) -> None:
    store, other = await open_store(node_id=NODE), await open_store(node_id=OTHER)
    mine = await led_by(store, configs)
    await other.close()
    await store.nodes.refresh()
    await empty(valkey, store)
    await produce_each(mine, 5, 7)
    assert (mine.gaps, mine.leader_epoch) == ([], 0)
    assert values(await all_of(mine)) == numbers(0, 7)
