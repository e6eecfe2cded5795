"""A stream that Redis code shares: whatever it writes, removes or numbers by hand, readers get every record once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial

import pytest

from headrace.broker.configs.topics import describe_configs
from headrace.store.partition.base import Partition
from headrace.store.partition.entries import LAST_SEQUENCE
from headrace.store.store import Store
from headrace.store.stream.ids import LAST_MS
from headrace.store.stream.partition import StreamPartition
from headrace.store.stream.writer import MOST_BYTES
from headrace.wire.batch import check_produced, crc_of
from headrace.wire.batch_errors import BatchTooLarge, InvalidBatch
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, decode_batch, encode_batch
from tests.movable_clock import MovableClock
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of, numbers, on, produce_each, read_from
from tests.store.produced import Stored, new_servers, produce, submit, until, values, wait_for_a_lease
from tests.store.proxy import Proxy
from tests.store.servers import Valkey

STREAM = {"headrace.format": "stream"}
_HOUR_MS = 3_600_000


@pytest.fixture
async def stream(store: Store) -> StreamPartition:
    return await open_stream(store)


async def open_stream(store: Store, **configs: str) -> StreamPartition:
    topic = await store.default.catalogue.find("orders") or await store.default.catalogue.create(
        "orders", 1, STREAM | configs
    )
    partition = await store.default.partition(topic, 0)
    assert isinstance(partition, StreamPartition)
    return partition


def add(valkey: Valkey, partition: Partition, value: str, identity: str = "*") -> str:
    """What Redis code does."""
    made: bytes = valkey.ask("XADD", partition.keys.log, identity, "value", value)
    return made.decode()


def setting(event: asyncio.Event) -> Callable[[Partition], None]:
    return lambda _: event.set()


async def agrees(found: list[Stored], partition: StreamPartition, open_store: OpenStore) -> None:
    """Offsets rise, each leads to its record, and a node that opens the partition afresh sees the same."""
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    for one in found[:: max(len(found) // 20, 1)]:
        assert (await read_from(partition, one.offset))[:1] == [one]
    other = await open_stream(await open_store())
    assert await all_of(other) == found
    assert other.end == partition.end


async def test_the_stream_has_a_name_that_redis_code_can_know(valkey: Valkey, stream: StreamPartition) -> None:
    await produce(stream, b"hello")
    [(_, fields)] = valkey.stream("headrace:default:{orders:0}:stream")
    assert fields == {b"value": b"hello"}


async def test_a_plain_xadd_is_a_produced_record(valkey: Valkey, stream: StreamPartition) -> None:
    identity = add(valkey, stream, "hello")
    ms, sequence = map(int, identity.split("-"))
    [found] = await all_of(stream)
    assert (found.value, found.timestamp, found.offset) == (b"hello", ms, (ms << 10) + sequence)
    assert stream.end == found.offset + 1
    assert await stream.find_time(ms) == (found.offset, ms)


async def test_records_of_both_kinds_come_in_the_streams_order(
    valkey: Valkey, stream: StreamPartition, open_store: OpenStore
) -> None:
    for at in range(0, 60, 3):
        add(valkey, stream, str(at))
        await produce(stream, b"%d" % (at + 1), producer=1, sequence=2 * at // 3)
        await produce(stream, b"%d" % (at + 2), producer=1, sequence=2 * at // 3 + 1)
    found = await all_of(stream)
    assert values(found) == numbers(0, 60)
    cached = stream.read_cached(found[0].offset, 1 << 20, True)
    assert cached is not None
    await agrees(found, stream, open_store)


async def test_redis_code_that_never_pauses_does_not_keep_a_producer_out(
    valkey: Valkey, stream: StreamPartition, open_store: OpenStore
) -> None:
    stop = False

    def write() -> int:
        count = 0
        with valkey.client() as client:
            while not stop:
                pipe = client.pipeline(transaction=False)
                for _ in range(50):
                    pipe.xadd(stream.keys.log, {"value": b"r%d" % count})
                    count += 1
                pipe.execute()
        return count

    writing = asyncio.create_task(asyncio.to_thread(write))
    bases = await produce_each(stream, 0, 30)
    stop = True
    written = await writing
    found = await all_of(stream)
    assert [one.value for one in found if one.value and one.value[:1] == b"r"] == [b"r%d" % n for n in range(written)]
    assert [(one.offset, one.value) for one in found if one.offset in bases] == list(
        zip(bases, numbers(0, 30), strict=True)
    )
    assert len(found) == written + 30
    await agrees(found, stream, open_store)


async def test_five_thousand_in_one_transaction_lose_nothing(
    valkey: Valkey, stream: StreamPartition, open_store: OpenStore
) -> None:
    await produce(stream, b"first")
    with valkey.client() as client:
        pipe = client.pipeline(transaction=True)
        for at in range(5000):
            pipe.xadd(stream.keys.log, {"value": b"%d" % at})
        ids = pipe.execute()
    await produce(stream, b"last", b"of all")
    found = await all_of(stream)
    assert values(found) == [b"first", *numbers(0, 5000), b"last", b"of all"]
    # They share a millisecond from Redis 7 on; before, each has the time at which it was run.
    assert bool(stream.ids.exceptions) is any(int(one.split(b"-")[1]) >= 1024 for one in ids)
    await agrees(found, stream, open_store)


async def test_what_was_given_out_in_an_overflow_is_not_given_out_again_after_it_was_trimmed(
    valkey: Valkey, stream: StreamPartition, open_store: OpenStore
) -> None:
    ms = stream.now_ms() + 60_000  # no clock gets there during the test
    with valkey.client() as client:
        pipe = client.pipeline()
        for at in range(3000):
            pipe.xadd(stream.keys.log, {"value": at}, id=f"{ms}-{at}")
        pipe.execute()
    found = await all_of(stream)
    valkey.ask("XTRIM", stream.keys.log, "MAXLEN", "=", 0)
    other = await open_stream(await open_store())
    add(valkey, stream, "next", f"{ms + 1}-0")
    [following] = await all_of(other)
    assert following.offset == found[-1].offset + 1
    assert await read_from(stream, found[-1].offset + 1) == [following]


@pytest.mark.parametrize(
    "ids",
    [
        ["1-1", "1-2", "2-0", "5-0"],
        ["7-99999", "7-100000", "8-0", "9-1"],
        ["99999999999999-0", "99999999999999-5000", "99999999999999-9000000000000"],
        ["5-1", f"5-{1 << 62}", "6-0", "7-0"],
        [f"{1 << 60}-0", f"{1 << 60}-7", f"{(1 << 60) + 1}-0", f"{1 << 62}-3"],
        [f"{(1 << 53) - 1}-1023", f"{1 << 53}-0"],
    ],
)
async def test_ids_chosen_by_hand_are_read_and_appended_behind(
    valkey: Valkey, stream: StreamPartition, open_store: OpenStore, ids: list[str]
) -> None:
    for at, identity in enumerate(ids):
        add(valkey, stream, str(at), identity)
    first = (await produce(stream, b"ours", b"too")).base_offset
    add(valkey, stream, "after", "*")
    await produce(stream, b"again")
    found = await all_of(stream)
    assert values(found) == [*numbers(0, len(ids)), b"ours", b"too", b"after", b"again"]
    assert [one.offset for one in found if one.value in (b"ours", b"too")] == [first, first + 1]
    await agrees(found, stream, open_store)


async def test_behind_the_last_id_of_all_nothing_is_appended(valkey: Valkey, stream: StreamPartition) -> None:
    add(valkey, stream, "the end", f"{LAST_MS}-{LAST_SEQUENCE}")
    with pytest.raises(Exception, match="which Redis code chose"):
        await produce(stream, b"late", timeout_s=2)
    assert values(await all_of(stream)) == [b"the end"]


@pytest.mark.parametrize("bits", [0, 1, 22])
async def test_batches_have_consecutive_offsets_whatever_the_bits(
    valkey: Valkey, store: Store, open_store: OpenStore, bits: int
) -> None:
    stream = await open_stream(store, **{"headrace.stream.sequence.bits": str(bits)})
    expected = []
    for _ in range(5):
        base = (await produce(stream, *numbers(0, 50))).base_offset
        expected += list(range(base, base + 50))
    found = await all_of(stream)
    assert [one.offset for one in found] == expected
    await agrees(found, stream, open_store)


async def test_records_have_the_time_that_the_broker_shows_whatever_another_version_stored(store: Store) -> None:
    stream = await open_stream(store, **{"message.timestamp.type": "OfAnotherVersion"})
    shown = next(one for one in describe_configs(stream.topic.configs, ()) if one.name == "message.timestamp.type")
    assert shown.value == "LogAppendTime"
    await produce(stream, b"a", timestamps=[1000])
    [found] = await all_of(stream)
    assert found.timestamp == found.offset >> 10


async def test_a_topic_made_over_a_stream_takes_its_entries_over(
    valkey: Valkey, store: Store, open_store: OpenStore
) -> None:
    with valkey.client() as client:
        pipe = client.pipeline(transaction=False)
        for at in range(300):
            pipe.xadd("headrace:default:{orders:0}:stream", {"value": at})
        pipe.execute()
    stream = await open_stream(store)
    assert values(await all_of(stream)) == numbers(0, 300)
    await produce(stream, b"300")
    await agrees(await all_of(stream), stream, open_store)


async def test_what_redis_code_trims_is_passed_over(valkey: Valkey, stream: StreamPartition) -> None:
    offsets = await produce_each(stream, 0, 20)
    valkey.ask("XTRIM", stream.keys.log, "MAXLEN", "=", 5)
    assert values(await read_from(stream, offsets[3])) == numbers(15, 20)
    assert await stream.find_earliest() == offsets[15]
    await stream.enforce_retention(-1, -1)
    assert await stream.find_earliest() == offsets[15]


async def test_newest_entries_that_redis_code_removes_do_not_move_the_end_back(
    valkey: Valkey, stream: StreamPartition, open_store: OpenStore
) -> None:
    await produce_each(stream, 0, 5)
    end = stream.end
    for identity, _ in valkey.stream(stream.keys.log)[2:]:
        valkey.ask("XDEL", stream.keys.log, identity)
    assert values(await all_of(stream)) == numbers(0, 2)
    other = await open_stream(await open_store())
    assert (stream.end, other.end) == (end, end)
    assert (await produce(other, b"new")).base_offset >= end
    assert values(await all_of(stream)) == [b"0", b"1", b"new"]


async def test_a_consumer_right_behind_what_retention_removed_has_missed_nothing(
    valkey: Valkey, stream: StreamPartition
) -> None:
    old_ms = stream.now_ms() - 2 * _HOUR_MS
    valkey.ask("XADD", stream.keys.log, f"{old_ms}-0", "value", "read")
    read = old_ms << 10
    await stream.confirm()
    await produce(stream, b"unread")
    assert values(await read_from(stream, read)) == [b"read", b"unread"]
    await stream.enforce_retention(_HOUR_MS, -1)
    assert stream.log_start > read
    await stream.confirm()
    stream.check_offset(read + 1)
    assert values(await read_from(stream, read + 1)) == [b"unread"]


async def test_an_xadd_wakes_whoever_waits_also_for_a_partition_added_later(valkey: Valkey, store: Store) -> None:
    topic = await store.default.catalogue.create("many", 3, STREAM)
    for number in range(3):
        partition = await store.default.partition(topic, number)
        woken = asyncio.Event()
        watcher = setting(woken)
        partition.watch(watcher)
        await until(lambda: b"cmd=xread" in valkey.ask("CLIENT", "LIST"))
        valkey.ask("XADD", partition.keys.log, "*", "value", "x")
        await asyncio.wait_for(woken.wait(), 1)
        partition.unwatch(watcher)


async def test_waking_goes_on_after_the_connection_was_lost(valkey: Valkey, stream: StreamPartition) -> None:
    woken = asyncio.Event()
    stream.watch(lambda _: woken.set())
    await until(lambda: b"cmd=xread" in valkey.ask("CLIENT", "LIST"))
    valkey.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def add_until_woken() -> None:
        while not woken.is_set():
            add(valkey, stream, "x")
            await asyncio.sleep(0.02)

    await asyncio.wait_for(add_until_woken(), 20)


async def test_every_kind_of_record_survives(valkey: Valkey, stream: StreamPartition, open_store: OpenStore) -> None:
    records = [
        Record(0, 5, None, None, []),
        Record(1, 5, b"", b"", []),
        Record(2, 5, b"\xff\x00", b"\r\n$5\r\n", [("a", b"1"), ("a", None), ("a", b""), ("", b"x"), ("\udcff", b"")]),
        Record(3, 5, None, None, [("only", None)]),
        Record(4, 5, b"k", None, []),
    ]
    view = memoryview(bytearray(encode_batch(records)))
    base = (await submit(stream, view, check_produced(view, 1 << 20))).base_offset
    for partition in (stream, await open_stream(await open_store())):
        await partition.confirm()
        taken = await partition.read(base, 1 << 20, True)
        found = [record for chunk in taken.chunks for record in decode_batch(chunk)]
        assert [(r.key, r.value, r.headers) for r in found] == [(r.key, r.value, r.headers) for r in records]


async def test_entries_with_other_fields_are_json_or_left_out(valkey: Valkey, store: Store) -> None:
    stream = await open_stream(store)
    valkey.ask("XADD", stream.keys.log, "*", "temperature", "21", "unit", "C")
    await produce(stream, b"plain")
    found = await all_of(stream)
    assert json.loads(found[0].value or b"") == {"temperature": "21", "unit": "C"}
    await store.default.catalogue.set_configs(stream.topic, STREAM | {"headrace.stream.foreign": "skip"})
    assert values(await all_of(stream)) == [b"plain"]


async def test_a_batch_whose_inside_is_bad_is_refused(stream: StreamPartition) -> None:
    good = encode_batch([Record(0, 5, None, b"x" * 50, [])])
    bad = bytearray(good)
    bad[61] ^= 0x7F
    bad[17:21] = crc_of(bad).to_bytes(4, "big")
    view = memoryview(bad)
    header = check_produced(view, 1 << 20)
    with pytest.raises(InvalidBatch) as refused:
        await stream.writer.pack(view, header, MOST_BYTES)
    assert refused.value.error_code == ErrorCode.INVALID_RECORD


async def test_a_batch_that_would_hold_redis_up_is_refused(stream: StreamPartition) -> None:
    view = memoryview(bytearray(encode_batch([Record(0, 5, None, bytes(MOST_BYTES + 1), [])], compression="zstd")))
    with pytest.raises(BatchTooLarge):
        await stream.writer.pack(view, check_produced(view, 1 << 20), 2 * MOST_BYTES)


async def test_a_server_killed_at_any_moment_has_all_of_a_batch_or_nothing(
    valkey: Valkey, store: Store, stream: StreamPartition
) -> None:
    for _ in range(3):
        sending = [produce(stream, *numbers(0, 500), timeout_s=30) for _ in range(6)]
        await asyncio.sleep(0.004)
        async with new_servers(store):
            valkey.restart()
            rows = valkey.stream(stream.keys.log)
        assert len(rows) % 500 == 0
        assert [row[1][b"value"] for row in rows] == numbers(0, 500) * (len(rows) // 500)
        await asyncio.gather(*sending)
    assert values(await all_of(stream)) == numbers(0, 500) * 18


async def test_entries_that_redis_code_wrote_to_a_store_that_lost_ours_leave_a_gap(
    valkey: Valkey, store: Store, stream: StreamPartition, open_store: OpenStore
) -> None:
    offsets = await produce_each(stream, 0, 5)
    checkpoint = valkey.checkpoint()
    await produce_each(stream, 5, 10)
    end = stream.end
    async with new_servers(store):
        valkey.go_back_to(checkpoint, start=False)
        valkey.start()
        add(valkey, stream, "meanwhile")
    await stream.confirm()
    found = await all_of(stream)
    if stream.gaps:  # unless the broker was faster than Redis code, and all could be restored
        assert values(found) == [*numbers(0, 5), b"meanwhile"]
        assert [(gap.start, gap.end) for gap in stream.gaps] == [(offsets[4] + 1, end)]
        assert stream.leader_epoch == 1
        assert found[-1].offset >= end
    else:
        assert values(found) == [*numbers(0, 10), b"meanwhile"]
    await wait_for_a_lease(stream)
    assert (await produce(stream, b"9", producer=7, sequence=9)).duplicate is not bool(stream.gaps)


async def test_an_old_deletion_that_was_cut_short_does_not_take_a_new_topics_stream(
    valkey: Valkey, store: Store, stream: StreamPartition
) -> None:
    record = valkey.ask("HGET", store.default.keys.topics, "orders")
    await produce(stream, b"old")
    await store.default.catalogue.delete(stream.topic)
    again = await open_stream(store)
    await produce(again, b"new")
    valkey.ask("HSET", store.default.keys.deleted_topics, stream.topic.id, record)
    await store.default.catalogue.sweep()
    assert values(await all_of(again)) == [b"new"]


async def test_a_topic_that_was_made_twice_at_once_takes_its_records_along_when_it_is_deleted(
    valkey: Valkey, store: Store, stream: StreamPartition, open_store: OpenStore
) -> None:
    await produce(stream, b"old")
    with pytest.raises(KafkaError, match="already exists"):
        await (await open_store()).default.catalogue.create("orders", 1, stream.topic.configs)
    await store.default.catalogue.delete(stream.topic)
    assert not valkey.keys_with("orders")
    assert values(await all_of(await open_stream(store))) == []


async def test_producers_that_are_silent_for_long_are_forgotten(
    valkey: Valkey, clock: MovableClock, store: Store
) -> None:
    stream = await open_stream(store)
    await produce_each(stream, 0, 1)
    await stream.enforce_retention(-1, -1)
    assert valkey.ask("HLEN", stream.keys.producers) == 1
    clock.advance(store.options.producer_expiration_ms + 1000)
    await stream.enforce_retention(-1, -1)
    assert valkey.ask("HLEN", stream.keys.producers) == 0
    assert not (await produce(stream, b"0", producer=7, sequence=0)).duplicate


async def test_connections_that_break_at_any_moment_lose_and_double_nothing(
    valkey: Valkey, proxy: Proxy, open_store: OpenStore
) -> None:
    """Two nodes, batches with and without sequences, Redis code beside them; every acknowledged batch is there once."""
    stores = [await open_store(via=proxy) for _ in range(2)]
    first = await open_stream(stores[0])
    other = await on(stores[1], first)
    bases: dict[bytes, int] = {}
    stop = asyncio.Event()

    async def send(partition: Partition, who: int, producer: int) -> None:
        for at in range(25):
            value = b"%d:%d" % (who, at)
            sequence = at if producer >= 0 else -1
            bases[value] = (await produce(partition, value, producer=producer, sequence=sequence)).base_offset

    def got_through(before: int) -> bool:
        return len(bases) > before or stop.is_set()

    async def disturb() -> None:
        while not stop.is_set():
            acknowledged = len(bases)
            for _ in range(3):
                await asyncio.sleep(0.02)
                proxy.cut()
                add(valkey, first, "redis")
            # However slow the machine is, something gets through in the end.
            await until(partial(got_through, acknowledged))

    disturbing = asyncio.create_task(disturb())
    await asyncio.gather(send(first, 1, 1), send(other, 2, 2), send(first, 3, -1), send(other, 4, -1))
    stop.set()
    await disturbing
    found = [one for one in await all_of(await open_stream(await open_store())) if one.value != b"redis"]
    assert {one.value: one.offset for one in found} == bases
    assert len(found) == 100


async def test_a_node_that_is_behind_does_not_take_back_how_far_offsets_were_given_out(
    valkey: Valkey, store: Store, stream: StreamPartition, open_store: OpenStore
) -> None:
    """The last ids are exceptional, all entries are gone, the store restarts, and the other node knows most."""
    now_ms = store.clock.wall_ms()
    add(valkey, stream, "a", f"{now_ms}-5000")
    await stream.confirm()
    other_store = await open_store()
    other = await open_stream(other_store)
    add(valkey, stream, "b", f"{now_ms}-9000")
    await other.confirm()
    end = other.end
    valkey.ask("XTRIM", stream.keys.log, "MAXLEN", 0)
    timelines = stream.link.timeline, other.link.timeline
    valkey.restart()
    await until(lambda: stream.link.timeline > timelines[0] and other.link.timeline > timelines[1])
    await until(lambda: stream.link.is_up and other.link.is_up)
    await other.confirm()
    await stream.confirm()
    assert valkey.ask("HGET", stream.keys.meta, "seen").startswith(b"%d-9000 " % now_ms)
    assert (await open_stream(await open_store())).end == end


async def test_the_last_id_is_never_set_back(valkey: Valkey, store: Store, stream: StreamPartition) -> None:
    newest = add(valkey, stream, "a", f"{store.clock.wall_ms()}-7")
    valkey.ask("XDEL", stream.keys.log, newest)
    for identity, expected in (("5-0", newest), (newest.replace("-7", "-6"), newest), (newest + "0", newest + "0")):
        await store.scripts.run("raise_last_id", [stream.keys.log], [identity])
        assert (await stream.info())[b"last-generated-id"].decode() == expected
