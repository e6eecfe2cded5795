"""Compaction beside other nodes, other servers and lost state."""

from __future__ import annotations

import pytest

from headrace.store.cluster.catalogue import Placing
from headrace.store.log.partition import LogPartition
from headrace.store.partition import origin
from headrace.store.partition.index import Point
from headrace.store.partition.losses import Gap
from headrace.store.store import Store
from headrace.wire.errors import KafkaError
from tests.movable_clock import MovableClock
from tests.store.compacted import ALWAYS, NEVER, UNKNOWN_MS, compact, compacted_topic, left, put
from tests.store.conftest import OpenStore
from tests.store.log.test_back_in_time import go_back
from tests.store.log.test_compaction_kills import assert_reads, fill
from tests.store.produced import log_partition, same_partition
from tests.store.servers import Valkey


@pytest.fixture
async def orders(store: Store) -> LogPartition:
    placing = Placing(2, {0: [1, 0]})
    topic = await store.default.catalogue.create("orders", 1, {"cleanup.policy": "compact"}, placing)
    return await log_partition(store, topic)


async def led_elsewhere(partition: LogPartition, open_store: OpenStore) -> LogPartition:
    """The partition on a second node, which leads it from now on: the one that it was assigned to."""
    store = await open_store(node_id=1)
    assert store.nodes.leader(partition.topic, partition.number) == store.nodes.me
    other = await same_partition(store, partition)
    await other.confirm()
    await put(other, (b"moved", b""))
    return other


async def test_a_node_that_no_longer_leads_does_not_put_its_copy_in_place(
    orders: LogPartition, open_store: OpenStore, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = await fill(orders, 10)
    await orders.cleaner.run_if_due(NEVER, UNKNOWN_MS)
    clock.advance(UNKNOWN_MS)
    copying = orders.cleaner._copy
    others: list[LogPartition] = []

    async def slow(*arguments: object) -> object:
        copy = await copying(*arguments)  # type: ignore[arg-type]
        others.append(await led_elsewhere(orders, open_store))
        return copy

    monkeypatch.setattr(orders.cleaner, "_copy", slow)
    assert await orders.cleaner.run_if_due(ALWAYS, UNKNOWN_MS) == []
    [other] = others
    written.append((40, (b"moved", b"")))
    await assert_reads(other, written)
    assert other.clean.end == 0
    await compact(other, clock)
    assert other.clean.end == other.last_base
    await assert_reads(other, written)
    orders.doubt()
    await orders.confirm()
    await assert_reads(orders, written)


async def test_a_node_that_comes_back_knows_the_producers_whose_batches_were_compacted(
    orders: LogPartition, open_store: OpenStore, clock: MovableClock
) -> None:
    await put(orders, (b"a", b"0"), producer=7, sequence=0)
    other = await led_elsewhere(orders, open_store)
    for n in range(1, 10):
        await put(other, (b"a", b"%d" % n), producer=7, sequence=n)
    await put(other, (b"z", b""))
    await compact(other, clock)
    assert other.clean.end > orders.end
    orders.doubt()
    await orders.confirm()
    assert (await put(orders, (b"a", b"9"), producer=7, sequence=9)).duplicate
    with pytest.raises(KafkaError, match="expected 10"):
        await put(orders, (b"a", b"9"), producer=7, sequence=11)
    assert await left(orders) == await left(other)


async def test_entries_so_young_that_the_node_before_may_still_look_for_them_stay(
    orders: LogPartition, open_store: OpenStore, clock: MovableClock
) -> None:
    await fill(orders, 5)
    other = await led_elsewhere(orders, open_store)
    for passes in (0, 0, 1):
        assert len(await other.cleaner.run_if_due(ALWAYS, UNKNOWN_MS)) == passes
        clock.advance(UNKNOWN_MS // 2)


async def test_only_the_node_that_took_the_partition_up_compacts(
    orders: LogPartition, open_store: OpenStore, clock: MovableClock
) -> None:
    await fill(orders, 5)
    other = await led_elsewhere(orders, open_store)
    assert origin.is_ours(other)
    assert await compact(orders, clock) == []


async def test_a_store_that_goes_back_behind_a_compaction_has_the_log_again(
    valkey: Valkey, store: Store, orders: LogPartition, clock: MovableClock
) -> None:
    written = await fill(orders, 10)
    checkpoint = valkey.checkpoint()
    await compact(orders, clock)
    written += await fill(orders, 3)
    await compact(orders, clock)
    border = orders.clean.end
    await go_back(valkey, store, checkpoint)
    written += await fill(orders, 1)
    assert orders.clean.end == 0
    await assert_reads(orders, written)
    assert orders.gaps == []
    await compact(orders, clock)
    assert orders.clean.end > border
    await assert_reads(orders, written)


async def test_a_store_that_lost_the_copy_keeps_the_log(
    valkey: Valkey, store: Store, orders: LogPartition, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary that hangs may put the copy in place after its replica took over: the log is trimmed elsewhere."""
    written = await fill(orders, 10)
    checkpoint, trim = valkey.checkpoint(), orders.cleaner._trim_log

    async def trim_elsewhere() -> None:
        if orders.clean.end:
            monkeypatch.undo()
            await go_back(valkey, store, checkpoint)
        await trim()

    monkeypatch.setattr(orders.cleaner, "_trim_log", trim_elsewhere)
    await compact(orders, clock)
    await orders.confirm()
    assert orders.clean.end == 0
    assert orders.gaps == []
    await assert_reads(orders, written)
    await compact(orders, clock)
    assert orders.clean.end == orders.last_base
    await assert_reads(orders, written)


async def test_a_copy_is_not_put_in_place_on_a_server_that_may_lack_what_was_read(
    valkey: Valkey, store: Store, orders: LogPartition, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders.cleaner.run_if_due(NEVER, UNKNOWN_MS)
    written = await fill(orders, 10)
    checkpoint, noting = valkey.checkpoint(), orders.cleaner._note_keys
    written += await fill(orders, 10)

    async def note_and_go_back(*arguments: object) -> object:
        seen = await noting(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        orders.tail.clear()  # as after more appends than it holds
        await go_back(valkey, store, checkpoint)
        return seen

    monkeypatch.setattr(orders.cleaner, "_note_keys", note_and_go_back)
    assert await compact(orders, clock) == []
    await orders.confirm()
    assert orders.gaps == [Gap(40, 80)]
    found = [(record.offset, (record.key, record.value)) for record in await left(orders)]
    assert [one for one in found if one[0] < 40] == written[:40]


async def test_a_pass_does_not_begin_on_a_server_that_was_not_read(
    valkey: Valkey, store: Store, orders: LogPartition, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks the last entries: what it has would all be compacted away, and nothing be left to restore behind."""
    written = await fill(orders, 10)
    trim = orders.cleaner._trim_log

    async def trim_and_lose_the_last_entries() -> None:
        await trim()
        if orders.clean.end:
            monkeypatch.undo()
            checkpoint = valkey.checkpoint()
            written.extend(await fill(orders, 3))
            await go_back(valkey, store, checkpoint)

    monkeypatch.setattr(orders.cleaner, "_trim_log", trim_and_lose_the_last_entries)
    assert len(await compact(orders, clock)) == 1
    await orders.confirm()
    assert orders.gaps == []
    assert orders.end == 52
    await assert_reads(orders, written)
    assert await compact(orders, clock)
    await assert_reads(orders, written)


async def test_a_store_that_goes_back_to_an_earlier_copy_serves_that_one(
    valkey: Valkey, store: Store, orders: LogPartition, clock: MovableClock
) -> None:
    written = await fill(orders, 10)
    await compact(orders, clock)
    border = orders.clean.end
    checkpoint = valkey.checkpoint()
    written += await fill(orders, 10)
    await compact(orders, clock)
    await go_back(valkey, store, checkpoint)
    await orders.confirm()
    assert orders.clean.end == border
    assert orders.gaps == []
    await assert_reads(orders, written)


async def test_a_restart_of_the_store_changes_nothing(
    valkey: Valkey, store: Store, orders: LogPartition, clock: MovableClock
) -> None:
    written = await fill(orders, 10)
    await compact(orders, clock)
    before = await left(orders)
    await go_back(valkey, store, valkey.checkpoint())
    await orders.confirm()
    assert await left(orders) == before
    assert orders.leader_epoch == 0
    await assert_reads(orders, written)


async def test_a_log_that_was_lost_keeps_what_is_left_of_it(orders: LogPartition, clock: MovableClock) -> None:
    written = await fill(orders, 10)
    await compact(orders, clock)
    await orders.link.call("DEL", orders.keys.log)
    orders.doubt()
    await orders.confirm()
    await assert_reads(orders, written)


async def test_all_keys_lost_come_back_from_the_cache_as_far_as_it_goes(
    valkey: Valkey, orders: LogPartition, clock: MovableClock
) -> None:
    written = await fill(orders, 10)
    await compact(orders, clock)
    valkey.ask("DEL", *orders.keys.all())
    orders.doubt()
    await orders.confirm()
    await assert_reads(orders, written)


async def test_a_lost_copy_is_a_gap_that_people_see(
    valkey: Valkey, orders: LogPartition, open_store: OpenStore, clock: MovableClock
) -> None:
    await fill(orders, 10)
    await compact(orders, clock)
    valkey.ask("DEL", orders.keys.clean.log)
    other = await same_partition(await open_store(), orders)
    assert (other.log_start, other.gaps) == (36, [Gap(0, 36)])
    assert [record.offset for record in await left(other)] == [36, 37, 38, 39]


async def test_deleting_records_frees_what_was_compacted(store: Store, clock: MovableClock) -> None:
    orders = await compacted_topic(store, **{"cleanup.policy": "compact,delete"})
    for n in range(300):
        await put(orders, *((b"%d-%d" % (n, i), b"x" * 200) for i in range(10)))
    await compact(orders, clock)
    size = orders.size_bytes
    await orders.delete_before(1_505)
    assert [record.offset for record in await left(orders)] == list(range(1_505, 3_000))
    assert size * 0.3 < orders.size_bytes < size * 0.7
    await orders.delete_before(2_999)
    assert [record.offset for record in await left(orders)] == [2_999]
    assert await orders.link.call("EXISTS", *orders.keys.clean) == 0
    await put(orders, (b"a", b""))
    await put(orders, (b"a", b""))
    await compact(orders, clock)
    assert [record.offset for record in await left(orders)] == [2_999, 3_000, 3_001]


async def test_deleting_the_topic_removes_all_of_it(store: Store, orders: LogPartition, clock: MovableClock) -> None:
    await fill(orders, 10)
    await compact(orders, clock)
    assert await orders.link.call("EXISTS", orders.keys.clean.log) == 1
    await store.default.catalogue.delete(orders.topic)
    assert await orders.link.call("KEYS", "*{orders:0:*") == []


async def test_mirrors_of_groups_stand_before_what_is_left_in_the_log(
    orders: LogPartition, clock: MovableClock
) -> None:
    await fill(orders, 10)
    behind = await orders.mirror_position(38)
    await compact(orders, clock)
    assert behind == ("32-1", 9)
    assert await orders.mirror_position(38) == ("35-1", 9)
    assert await orders.mirror_position(5) == ("0-0", 9)
    assert orders.index.floor(36) == Point(36, 1000, orders.index.sizes[0], 9)
