"""What holds for a partition whichever format it has: nothing is lost, doubled or reordered, and every node agrees."""

from __future__ import annotations

import asyncio

import pytest

from headrace.store.cluster.announcements import Announcements
from headrace.store.cluster.nodes.nodes import Nodes
from headrace.store.partition.base import Partition
from headrace.store.partition.pending import Appended
from headrace.store.redis.errors import PartitionGone
from headrace.store.store import Store
from headrace.wire.errors import ErrorCode, KafkaError
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.produced import Stored, batch, new_servers, produce, records_in, submit, values, wait_for_a_lease
from tests.store.proxy import Fate, Proxy
from tests.store.servers import Valkey

HOUR_MS = 3_600_000
CONFIGS = [
    pytest.param({}, id="log"),
    pytest.param({"headrace.format": "stream"}, id="stream"),
    pytest.param({"headrace.format": "stream", "message.timestamp.type": "CreateTime"}, id="stream-create-time"),
]


@pytest.fixture(params=CONFIGS)
def configs(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


@pytest.fixture
async def either(store: Store, configs: dict[str, str]) -> Partition:
    """Partition 0 of `orders`, in each format."""
    return await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)


async def on(store: Store, partition: Partition) -> Partition:
    """The partition as another store sees it."""
    topic = await store.default.catalogue.find(partition.topic.name)
    assert topic is not None
    return await store.default.partition(topic, partition.number)


async def read_from(partition: Partition, offset: int, max_bytes: int = 1 << 20) -> list[Stored]:
    """All records from an offset on, as a consumer gets them from Redis, fetch by fetch."""
    partition.doubt()
    await partition.confirm()
    found: list[Stored] = []
    while offset < partition.end:
        some = [one for one in records_in(await partition.read(offset, max_bytes, True)) if one.offset >= offset]
        if not some:
            break
        found += some
        offset = some[-1].offset + 1
    return found


async def all_of(partition: Partition) -> list[Stored]:
    await partition.confirm()
    return await read_from(partition, partition.log_start)


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


async def produce_each(partition: Partition, first: int, stop: int, producer: int = 7) -> list[int]:
    """One append a record; their offsets."""
    return [
        (await produce(partition, b"%d" % number, producer=producer, sequence=number)).base_offset
        for number in range(first, stop)
    ]


async def test_records_come_back_in_order_at_the_offsets_that_were_answered(either: Partition) -> None:
    expected: list[tuple[int, bytes]] = []
    for at in range(20):
        some = numbers(10 * at, 10 * at + at % 4 + 1)
        base = (await produce(either, *some)).base_offset
        expected += [(base + place, value) for place, value in enumerate(some)]
    found = await all_of(either)
    assert [(one.offset, one.value) for one in found] == expected
    assert either.end == expected[-1][0] + 1
    cached = either.read_cached(either.log_start, 1 << 20, True)
    assert cached is not None
    assert records_in(cached) == found


async def test_all_that_many_send_at_once_arrives_once_in_each_ones_order(either: Partition) -> None:
    async def send(who: int) -> None:
        for at in range(10):
            await produce(either, b"%d-%d" % (who, at), producer=who, sequence=at)

    await asyncio.gather(*(send(who) for who in range(20)))
    found = values(await all_of(either))
    for who in range(20):
        assert [v for v in found if v and v.startswith(b"%d-" % who)] == [b"%d-%d" % (who, at) for at in range(10)]
    assert len(found) == 200


async def test_reading_from_any_offset_gives_exactly_what_lies_behind_it(either: Partition) -> None:
    for at in range(10):
        await produce(either, *numbers(5 * at, 5 * at + 5))
    found = await all_of(either)
    for one in found[::7]:
        for offset in (one.offset, one.offset + 1):
            assert await read_from(either, offset) == [other for other in found if other.offset >= offset]
            assert await read_from(either, offset, max_bytes=1) == [o for o in found if o.offset >= offset]


async def test_an_offset_outside_is_refused_and_the_end_is_not(either: Partition) -> None:
    await produce(either, b"a")
    await either.confirm()
    either.check_offset(either.end)
    for offset in (either.end + 1, -1):
        with pytest.raises(KafkaError) as refused:
            either.check_offset(offset)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_another_node_sees_the_same(either: Partition, open_store: OpenStore) -> None:
    await produce_each(either, 0, 30)
    other = await on(await open_store(), either)
    assert await all_of(other) == await all_of(either)
    assert (other.end, other.log_start) == (either.end, either.log_start)
    base = (await produce(other, b"other")).base_offset
    assert (await all_of(either))[-1] == Stored(base, b"other", (await all_of(other))[-1].timestamp, 0)


async def test_a_batch_sent_twice_is_stored_once_also_at_another_node(either: Partition, open_store: OpenStore) -> None:
    first = await produce(either, b"a", b"b", producer=3, sequence=0)
    second = await produce(either, b"c", producer=3, sequence=2)
    for partition in (either, await on(await open_store(), either)):
        assert await produce(partition, b"a", b"b", producer=3, sequence=0) == Appended(
            first.base_offset, duplicate=True
        )
        assert await produce(partition, b"c", producer=3, sequence=2) == Appended(second.base_offset, duplicate=True)
        with pytest.raises(KafkaError) as refused:
            await produce(partition, b"e", producer=3, sequence=9)
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(await all_of(either)) == [b"a", b"b", b"c"]


async def test_what_a_producer_sent_through_one_node_counts_at_the_other(
    either: Partition, open_store: OpenStore
) -> None:
    other = await on(await open_store(), either)
    nodes = (either, other)
    for at in range(20):
        await produce(nodes[at % 2], b"%d" % at, producer=3, sequence=at)
        assert (await produce(nodes[(at + 1) % 2], b"%d" % at, producer=3, sequence=at)).duplicate
    assert values(await all_of(either)) == numbers(0, 20)


async def test_two_nodes_that_append_at_once_lose_and_double_nothing(either: Partition, open_store: OpenStore) -> None:
    other = await on(await open_store(), either)
    bases: dict[bytes, int] = {}

    async def send(partition: Partition, who: int) -> None:
        for at in range(60):
            value = b"%d-%d" % (who, at)
            bases[value] = (await produce(partition, value, producer=who, sequence=at)).base_offset

    await asyncio.gather(send(either, 1), send(other, 2), send(either, 3), send(other, 4))
    found = await all_of(either)
    assert {one.value: one.offset for one in found} == bases
    assert len(found) == 240
    assert found == await all_of(other)


@pytest.mark.parametrize("fate", ["lose reply", "swallow"])
async def test_an_append_whose_answer_is_lost_goes_in_once(
    valkey: Valkey, proxy: Proxy, open_store: OpenStore, configs: dict[str, str], fate: Fate
) -> None:
    store = await open_store(via=proxy)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    await produce(partition, b"a")
    proxy.trap(fate)
    base = (await produce(partition, b"b", b"c")).base_offset
    await produce(partition, b"d", producer=1, sequence=0)
    proxy.trap(fate)
    await produce(partition, b"e", producer=1, sequence=1)
    assert (await produce(partition, b"e", producer=1, sequence=1)).duplicate
    found = await all_of(partition)
    assert values(found) == [b"a", b"b", b"c", b"d", b"e"]
    assert found[1].offset == base


async def test_a_first_copy_that_arrives_late_is_not_a_second_record(
    valkey: Valkey, proxy: Proxy, open_store: OpenStore, configs: dict[str, str]
) -> None:
    store = await open_store(via=proxy)
    partition = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    await produce(partition, b"a")
    first = proxy.trap("hold")
    future = produce(partition, b"b")
    await first.sprung.wait()
    base = (await future).base_offset
    await produce(partition, b"c")
    first.release.set()
    await first.arrived.wait()
    await produce(partition, b"d")
    found = await all_of(partition)
    assert values(found) == [b"a", b"b", b"c", b"d"]
    assert found[1].offset == base


async def test_deleted_records_are_gone_for_every_node_and_the_end_stays(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    offsets = await produce_each(either, 0, 20)
    end = either.end
    await either.delete_before(offsets[12])
    assert either.log_start == offsets[12]
    for partition in (either, await on(await open_store(), either)):
        assert values(await all_of(partition)) == numbers(12, 20)
        assert await partition.find_earliest() == offsets[12]
        with pytest.raises(KafkaError):
            partition.check_offset(offsets[11])
    await either.delete_before(end)
    for partition in (either, await on(await open_store(), either)):
        assert await all_of(partition) == []
        assert (partition.log_start, partition.end) == (end, end)
    assert (await produce(either, b"next")).base_offset >= end
    with pytest.raises(KafkaError):
        await either.delete_before(either.end + 1)


async def test_retention_removes_what_is_too_old(clock: MovableClock, store: Store, either: Partition) -> None:
    await produce_each(either, 0, 5)
    await either.enforce_retention(HOUR_MS, -1)
    now_ms = store.clock.wall_ms()
    data, header = batch([b"new"], timestamps=[now_ms])
    if not either.topic.configs or "message.timestamp.type" in either.topic.configs:
        # The first ones carry times of long ago.
        assert values(await all_of(either)) == []
    else:
        assert values(await all_of(either)) == numbers(0, 5)
    await submit(either, data, header)
    await either.enforce_retention(HOUR_MS, -1)
    assert values(await all_of(either))[-1:] == [b"new"]
    clock.advance(2 * HOUR_MS)
    await either.enforce_retention(HOUR_MS, -1)
    assert await all_of(either) == []


async def test_retention_by_size_keeps_at_least_what_was_asked(store: Store, either: Partition) -> None:
    for at in range(300):
        await produce(either, b"%d" % at + b"x" * 2000)
    await either.enforce_retention(-1, 200_000)
    found = await all_of(either)
    kept_bytes = sum(len(one.value or b"") for one in found)
    assert 200_000 * 0.9 <= kept_bytes <= 200_000 + 2 * store.options.index_interval_bytes
    assert found[-1].value == b"299" + b"x" * 2000
    assert 0.8 * kept_bytes <= either.size_bytes <= kept_bytes + 2 * store.options.index_interval_bytes


async def test_records_are_found_by_time(store: Store, either: Partition) -> None:
    times = [store.clock.wall_ms() - 1000 + 10 * at for at in range(100)]
    for time in times:
        await produce(either, b"x", timestamps=[time])
    found = await all_of(either)
    stamps = [one.timestamp for one in found]
    for at in (0, 13, 99):
        index = stamps.index(stamps[at])
        assert await either.find_time(stamps[at]) == (found[index].offset, stamps[at])
    assert await either.find_time(0) == (found[0].offset, stamps[0])
    assert await either.find_time(stamps[-1] + 100_000) is None
    newest = await either.find_newest()
    assert newest is not None
    assert newest[1] == max(stamps)


async def test_times_out_of_order_are_found_in_long_stretches_and_after_a_restart(
    store: Store, either: Partition, open_store: OpenStore
) -> None:
    began = store.clock.wall_ms() - 1000
    times = [began + 5 * at + (-40 if at % 7 == 0 else 35 if at % 11 == 0 else 0) for at in range(150)]
    for first in range(0, 150, 3):
        await produce(either, *numbers(first, first + 3), timestamps=times[first : first + 3])
    found = await all_of(either)
    asked = [began - 50, *(one.timestamp + late for one in found[::5] for late in (0, 1)), began + 10**9]

    def first_at(timestamp: int) -> tuple[int, int] | None:
        return next(((one.offset, one.timestamp) for one in found if one.timestamp >= timestamp), None)

    again = await on(await open_store(), either)
    for partition in (either, again, again):  # what the first look at it found out serves the second
        assert [await partition.find_time(timestamp) for timestamp in asked] == [first_at(time) for time in asked]
    await either.delete_before(found[70].offset)
    found = found[70:]
    assert [await either.find_time(timestamp) for timestamp in asked] == [first_at(time) for time in asked]


async def test_an_empty_partition_has_no_times(either: Partition) -> None:
    assert (await either.find_time(0), await either.find_newest()) == (None, None)
    assert await either.find_earliest() == either.end == 0


async def test_a_deleted_topic_is_gone_and_one_made_again_is_empty(
    valkey: Valkey, store: Store, either: Partition, open_store: OpenStore
) -> None:
    other = await on(await open_store(), either)
    await produce_each(either, 0, 5)
    await store.default.catalogue.delete(either.topic)
    with pytest.raises(PartitionGone):
        await produce(other, b"late", timeout_s=5)
    assert valkey.keys_with("orders:0") == set()
    again = await store.default.partition(await store.default.catalogue.create("orders", 1, either.topic.configs), 0)
    await produce(again, b"new")
    with pytest.raises(PartitionGone):
        await produce(other, b"late", timeout_s=5)
    assert values(await all_of(again)) == [b"new"]


async def test_what_the_store_lost_is_there_again_at_its_offsets(
    valkey: Valkey, store: Store, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(either, 5, 20)
    before = await all_of(either)
    async with new_servers(store):
        valkey.go_back_to(checkpoint)
    assert (await produce(either, b"19", producer=7, sequence=19)).duplicate
    await produce(either, b"20", producer=7, sequence=20)
    for partition in (either, await on(await open_store(), either)):
        assert (await all_of(partition))[:20] == before
        assert values(await all_of(partition)) == numbers(0, 21)
        assert partition.gaps == []


async def test_what_cannot_be_restored_is_a_gap_whose_offsets_are_never_used_again(
    valkey: Valkey, store: Store, either: Partition, open_store: OpenStore
) -> None:
    offsets = await produce_each(either, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(either, 5, 20)
    end = either.end
    either.tail.clear()
    async with new_servers(store):
        valkey.go_back_to(checkpoint)
    await either.confirm()
    assert [(gap.start, gap.end) for gap in either.gaps] == [(offsets[4] + 1, end)]
    assert either.leader_epoch == 1
    await wait_for_a_lease(either)
    assert (await produce(either, b"new", producer=7, sequence=99)).base_offset >= end
    for partition in (either, await on(await open_store(), either)):
        found = await all_of(partition)
        assert values(found) == [*numbers(0, 5), b"new"]
        assert found[-1].offset >= end
        assert (partition.leader_epoch, partition.epoch_end(0)) == (1, (0, end))
        assert await read_from(partition, offsets[4] + 1) == found[5:]


async def test_a_stream_that_was_evicted_is_made_again_behind_its_old_end(
    valkey: Valkey, either: Partition, open_store: OpenStore
) -> None:
    await produce_each(either, 0, 5)
    end = either.end
    either.tail.clear()
    valkey.ask("DEL", either.keys.log)
    either.doubt()
    assert (await produce(either, b"new")).base_offset >= end
    assert values(await all_of(either)) == [b"new"]
    other = await on(await open_store(), either)
    assert values(await all_of(other)) == [b"new"]
    assert other.gaps == either.gaps != []


async def test_a_flushed_stream_is_restored_from_the_cache(valkey: Valkey, either: Partition) -> None:
    await produce_each(either, 0, 5)
    before = await all_of(either)
    valkey.ask("DEL", *either.keys.all(), either.keys.log)
    either.doubt()
    await produce(either, b"5")
    found = await all_of(either)
    assert found[:5] == before
    assert values(found) == numbers(0, 6)


async def test_appends_of_another_node_wake_whoever_waits(either: Partition, open_store: OpenStore) -> None:
    others_store = await open_store()
    other = await on(others_store, either)
    await either.nodes.renew()
    woken = asyncio.Event()
    either.watch(lambda _: woken.set())
    await others_store.nodes.renew()

    async def append_until_heard() -> None:
        while not woken.is_set():
            await produce(other, b"x")
            await asyncio.sleep(0.01)

    await asyncio.wait_for(append_until_heard(), 20)


async def test_a_commits_mirror_is_the_last_entry_below_it(valkey: Valkey, either: Partition) -> None:
    offsets = await produce_each(either, 0, 10)
    ids = [identity.decode() for identity, _ in valkey.stream(either.keys.log)]
    for place in range(10):
        assert await either.mirror_position(offsets[place] + 1) == (ids[place], place + 1)
    assert (await either.mirror_position(offsets[0]))[0] == "0-0"
    assert await either.mirror_position(either.end) == (ids[-1], 10)


async def test_without_a_lease_the_log_is_read_after_somebody_asked(
    either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may lead by now: a read that began before does not show what it has acknowledged since."""
    theirs = await on(await open_store(node_id=1), either)
    monkeypatch.setattr(Nodes, "lease_is_valid", False)
    look, has_read, goes_on = either._look, asyncio.Event(), asyncio.Event()

    async def slow_look() -> None:
        await look()
        has_read.set()
        await goes_on.wait()

    monkeypatch.setattr(either, "_look", slow_look)
    first = asyncio.create_task(either.confirm())
    await has_read.wait()
    end = (await produce(theirs, b"0")).base_offset + 1
    second = asyncio.create_task(either.confirm())
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(first, second)
    assert either.end == end


async def test_a_confirmed_end_lies_behind_what_another_leader_gave_out_a_moment_ago(
    either: Partition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readers may go on here, and are told of a loss if this end lies before theirs (KIP-320)."""
    theirs = await on(await open_store(node_id=1), either)
    monkeypatch.setattr(Announcements, "appended_to", lambda *_: None)
    await either.nodes.refresh()
    await either.confirm()
    end = (await produce(theirs, b"0")).base_offset + 1
    await either.confirm_end()
    assert either.epoch_end(either.leader_epoch) == (either.leader_epoch, end)
