"""What a store lost stays known: no node, however long it did not look, takes back what another one noted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.store.partition import losses
from headrace.store.partition.base import Partition
from headrace.store.partition.losses import EpochStart, Gap
from headrace.store.redis.errors import OutcomeUnknown
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of, numbers, on, produce_each, read_from
from tests.store.produced import new_servers, produce, store_of, values, wait_for_a_lease
from tests.store.servers import Valkey
from tests.store.stream.test_restoring import come_back, keep_away
from tests.stores import of_one_server

PATIENCE_S = 30


@pytest.fixture(params=[{}, {"headrace.format": "stream"}], ids=["log", "stream"])
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def either(store: Store, configs: dict[str, str]) -> Partition:
    """Partition 0 of `orders`, in each format."""
    return await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)


async def made_for(node_id: int, open_store: OpenStore, store: Store, configs: dict[str, str]) -> Partition:
    """A partition that another node leads whenever it is there; it is not there when this returns."""
    other = await open_store(node_id=node_id)
    await store.nodes.refresh()
    topic = await store.default.catalogue.create("orders", 1, configs)
    while store.nodes.leader(topic, 0) != other.nodes.me:
        await store.default.catalogue.delete(topic)
        topic = await store.default.catalogue.create("orders", 1, configs)
    await other.close()
    await store.nodes.refresh()
    return await store.default.partition(topic, 0)


async def go_back(valkey: Valkey, checkpoint: Path, *stores: Store) -> None:
    """Loses what came after the checkpoint; returns when these nodes know that it is another server."""
    async with new_servers(*stores):
        valkey.go_back_to(checkpoint)
    for store in stores:
        await store.leases.wait_up(PATIENCE_S)


async def lose(valkey: Valkey, partition: Partition, first: int, *others: Store) -> Gap:
    """Produces five records that stay and five that are lost with no copy of them left; the gap that this leaves."""
    await wait_for_a_lease(partition)
    stay = await produce_each(partition, first, first + 5)
    checkpoint = valkey.checkpoint()
    await produce_each(partition, first + 5, first + 10)
    end = partition.end
    partition.tail.clear()
    await go_back(valkey, checkpoint, store_of(partition), *others)
    await partition.confirm()
    return Gap(stay[-1] + 1, end)


async def test_a_node_that_led_before_takes_no_loss_of_a_later_leader_back(
    valkey: Valkey, store: Store, open_store: OpenStore, configs: dict[str, str]
) -> None:
    either = await made_for(1, open_store, store, configs)
    first = await lose(valkey, either, 0)
    assert either.leader_epoch == 1
    await produce(either, b"between")
    other = await on(await open_store(node_id=1), either)
    await store.nodes.refresh()
    second = await lose(valkey, other, 10, store)
    assert (other.leader_epoch, other.gaps) == (2, [first, second])

    async with new_servers(store_of(either), store_of(other)):
        valkey.restart()
    await store_of(other).close()
    await either.nodes.refresh()
    appended = await produce(either, b"next")

    assert appended.base_offset >= second.end
    for partition in (either, await on(await open_store(), either)):
        assert (partition.leader_epoch, partition.gaps) == (2, [first, second])
        assert partition.epoch_end(1) == (1, second.end)
        assert partition.context.catalogue.by_name["orders"].epochs == {0: 2}
        assert partition.floor == second.end
        # A consumer inside the second gap, which fetches with epoch 2, goes on.
        assert values(await read_from(partition, second.start)) == [b"next"]
        assert values(await all_of(partition)) == [*numbers(0, 5), b"between", *numbers(10, 15), b"next"]


@of_one_server
@pytest.mark.parametrize("leads_again", [True, False])
async def test_what_a_node_has_of_records_that_another_one_left_a_margin_for_is_reported(
    valkey: Valkey,
    store: Store,
    open_store: OpenStore,
    configs: dict[str, str],
    leads_again: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    either = await made_for(1, open_store, store, configs)
    offsets = await produce_each(either, 0, 3)
    checkpoint = valkey.checkpoint()
    offsets += await produce_each(either, 3, 6)
    either.link.drop("the test keeps it away")
    valkey.go_back_to(checkpoint, start=False)
    keep_away(either)
    valkey.start()
    valkey.ask("DEL", store.keys.node(0))
    valkey.ask("HDEL", store.keys.nodes, 0)
    other = await on(await open_store(node_id=1), either)
    await produce(other, b"next")
    assert store_of(other).events == {"margins": 1}
    if leads_again:
        await store_of(other).close()
    await store.leases.wait_up(PATIENCE_S)
    await store.nodes.refresh()
    await come_back(either)

    assert values(await all_of(either)) == [*numbers(0, 3), b"next"]
    [told] = [record for record in caplog.records if "history differs" in record.message]
    stored = losses.parse(valkey.ask("HMGET", either.keys.meta, *losses.FIELDS))
    [replaced] = stored.replaced
    assert (told.__dict__["from_offset"], told.__dict__["to_offset"]) == (replaced.start, replaced.end)
    assert (replaced.start, replaced.end) == (offsets[3], offsets[5] + 1)
    assert store.events == {"replaced": 1}


async def test_losses_that_two_nodes_note_at_once_are_both_kept(either: Partition, open_store: OpenStore) -> None:
    await produce_each(either, 0, 10)
    other = await on(await open_store(), either)
    end = either.end
    await asyncio.gather(*(losses.record_gap(one, end + at, end + at + 1) for at, one in enumerate((either, other))))
    third = await on(await open_store(), either)
    assert third.gaps == [Gap(end, end + 1), Gap(end + 1, end + 2)]
    assert (third.leader_epoch, third.floor) == (2, end + 2)
    assert [one.epoch for one in third.epochs] == [0, 1, 2]
    assert sorted(third.epochs, key=lambda one: one.start) == third.epochs


async def test_a_loss_that_another_node_noted_is_not_noted_again(either: Partition, open_store: OpenStore) -> None:
    await produce_each(either, 0, 10)
    other = await on(await open_store(), either)
    start, end = either.end - 5, either.end
    await losses.record_gap(other, start, end)
    await losses.record_gap(either, start + 1, end)
    assert (either.leader_epoch, either.gaps) == (1, [Gap(start, end)])


async def test_what_the_store_forgot_of_losses_is_joined_with_what_it_knows(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    """Two nodes know of one loss each, of the same epoch."""
    await produce_each(either, 0, 10)
    end = either.end
    other = await on(await open_store(), either)
    checkpoint = valkey.checkpoint()
    await losses.record_gap(either, end, end + 10)
    await go_back(valkey, checkpoint, store_of(either), store_of(other))
    other.context.catalogue.version = -1  # so that the epoch is not known from there
    await other.context.catalogue.load()
    await losses.record_gap(other, end + 20, end + 30)
    assert other.leader_epoch == 1
    await losses.save_again(either)
    stored = losses.parse(valkey.ask("HMGET", either.keys.meta, *losses.FIELDS))
    assert (stored.gaps, stored.floor) == ([Gap(end, end + 10), Gap(end + 20, end + 30)], end + 30)
    assert [one.epoch for one in stored.epochs] == [0, 1]


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_gap_that_was_stored_by_a_try_that_failed_is_reported_by_the_next(
    either: Partition, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    await produce_each(either, 0, 3)
    end, run = either.end, either.scripts.run

    async def broken_off(name: str, *rest: Any) -> Any:
        if fails == "after":
            await run(name, *rest)
        raise OutcomeUnknown("the connection broke")

    with monkeypatch.context() as patched:
        patched.setattr(either.scripts, "run", broken_off)
        with pytest.raises(OutcomeUnknown):
            await losses.record_gap(either, end, end + 10)
    assert not store_of(either).events
    await losses.record_gap(either, end, end + 10)
    await losses.record_gap(either, end, end + 10)
    assert either.gaps == [Gap(end, end + 10)]
    assert store_of(either).events == {"gaps": 1}
    assert [record.message for record in caplog.records].count(
        "the store lost acknowledged records: the log has a gap"
    ) == 1
    assert either.current_topic.epochs == {0: either.leader_epoch}


async def test_a_loss_that_the_store_forgot_is_written_again(valkey: Valkey, either: Partition) -> None:
    await produce_each(either, 0, 10)
    end, checkpoint = either.end, valkey.checkpoint()
    await losses.record_gap(either, end, end + 10)
    await go_back(valkey, checkpoint, store_of(either))
    await either.confirm()
    stored = losses.parse(valkey.ask("HMGET", either.keys.meta, *losses.FIELDS))
    assert (stored.floor, stored.gaps, stored.epochs[-1]) == (end + 10, [Gap(end, end + 10)], EpochStart(1, end + 10))


async def test_a_floor_in_the_store_is_not_lowered_by_a_node_that_makes_a_lost_log_again(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 5)
    other = await on(await open_store(), either)
    floor = either.end + 1000
    await losses.record_gap(other, other.end, floor)
    valkey.ask("DEL", either.keys.log)
    await either.context.catalogue.remake_partition(either.topic, 0, either.end)
    assert int(valkey.ask("HGET", either.keys.meta, "floor")) == floor


async def test_starts_rise_by_a_single_offset_however_large_they_are(valkey: Valkey, either: Partition) -> None:
    """Lua's numbers are exact up to 2^53 only; offsets of streams go up to 2^63."""
    for start in (1 << 62, (1 << 62) + 1):
        await either.save_start(start)
        assert int(valkey.ask("HGET", either.keys.meta, "start")) == start
    await either.save_start(5)
    assert int(valkey.ask("HGET", either.keys.meta, "start")) == (1 << 62) + 1


async def test_only_the_newest_losses_are_kept(valkey: Valkey, either: Partition) -> None:
    for at in range(300):
        await losses.record_gap(either, 10 * at, 10 * at + 5)
    stored = msgspec.json.decode(valkey.ask("HGET", either.keys.meta, "gaps"), type=list[Gap])
    assert stored == [Gap(10 * at, 10 * at + 5) for at in range(300)][-256:] == either.gaps
    assert either.epochs[-1] == EpochStart(300, 2995)
