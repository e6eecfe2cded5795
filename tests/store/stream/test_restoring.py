"""What a stream lost comes back whoever wrote it: entries that were read are restored like those of this node."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from headrace.store.partition.base import Partition
from headrace.store.partition.losses import Gap
from headrace.store.store import Store
from headrace.store.stream.ids import StreamId, parse_id
from headrace.store.stream.other_history import compare
from headrace.store.stream.partition import StreamPartition
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of, numbers, on, produce_each
from tests.store.partition.test_restarts import another_server
from tests.store.produced import produce, store_of, until, values, wait_for_a_lease
from tests.store.proxy import Proxy
from tests.store.servers import Valkey
from tests.stores import of_one_server

STREAMS = [
    pytest.param({"headrace.format": "stream"}, id="append-time"),
    pytest.param({"headrace.format": "stream", "message.timestamp.type": "CreateTime"}, id="create-time"),
]


class Nodes(NamedTuple):
    """A stream at a node that led it and wrote to it, and at the one that leads it after that."""

    before: StreamPartition
    now: StreamPartition


@pytest.fixture(params=STREAMS)
async def nodes(request: pytest.FixtureRequest, store: Store, open_store: OpenStore) -> Nodes:
    before = await store.default.partition(await store.default.catalogue.create("orders", 1, request.param), 0)
    now = await on(await open_store(), before)
    assert isinstance(before, StreamPartition)
    assert isinstance(now, StreamPartition)
    await produce_each(before, 0, 3)
    await now.confirm()
    return Nodes(before, now)


async def leave(valkey: Valkey, nodes: Nodes) -> None:
    """The first node is gone for good, also for a store that went back to when it was there."""
    node_id = nodes.before.nodes.me.id
    await store_of(nodes.before).close()
    keys = store_of(nodes.now).keys
    valkey.ask("DEL", keys.node(node_id))
    valkey.ask("HDEL", keys.nodes, node_id)


async def test_what_another_node_wrote_is_restored_after_a_deletion(valkey: Valkey, nodes: Nodes) -> None:
    written = await all_of(nodes.now)
    await leave(valkey, nodes)
    await nodes.now.nodes.refresh()
    valkey.ask("DEL", nodes.now.keys.log)
    assert await all_of(nodes.now) == written
    assert nodes.now.gaps == []
    assert (await produce(nodes.now, b"2", producer=7, sequence=2)).duplicate
    await produce_each(nodes.now, 3, 5)
    assert values(await all_of(nodes.now)) == numbers(0, 5)


async def test_what_another_node_wrote_is_restored_with_its_producer(valkey: Valkey, nodes: Nodes) -> None:
    checkpoint = valkey.checkpoint()
    await produce_each(nodes.before, 3, 6)
    await nodes.now.confirm()
    written = await all_of(nodes.now)
    await store_of(nodes.before).close()
    async with another_server(store_of(nodes.now)):
        valkey.go_back_to(checkpoint)
    await leave(valkey, nodes)
    await nodes.now.nodes.refresh()  # it may notice the other server, and wait for those that it knows
    nodes.now.nodes.outages.wait_for([], 0)
    await nodes.now.nodes.refresh()
    # The other node may have written more that nobody knows of: the leader epoch rises.
    assert [one._replace(leader_epoch=0) for one in await all_of(nodes.now)] == written
    assert (await produce(nodes.now, b"5", producer=7, sequence=5)).duplicate
    await produce_each(nodes.now, 6, 8)
    assert values(await all_of(nodes.now)) == numbers(0, 8)


@pytest.mark.parametrize("configs", STREAMS)
async def test_a_batch_whose_answer_was_lost_is_restored_too(
    valkey: Valkey, proxy: Proxy, open_store: OpenStore, configs: dict[str, str]
) -> None:
    store = await open_store(via=proxy)
    stream = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    await produce_each(stream, 0, 2)
    trap = proxy.trap("lose reply")
    sending = produce(stream, b"2", producer=7, sequence=2)
    await trap.sprung.wait()
    await sending
    await produce_each(stream, 3, 5)
    valkey.ask("DEL", stream.keys.log)
    stream.doubt()
    assert values(await all_of(stream)) == numbers(0, 5)
    assert stream.gaps == []


async def test_entries_with_other_fields_are_their_writers_own_to_lose(valkey: Valkey, nodes: Nodes) -> None:
    stream = nodes.now
    valkey.ask("XADD", stream.keys.log, "*", "colour", "red")
    valkey.ask("XADD", stream.keys.log, "*", "key", "k", "value", "plain", "h:a", "b")
    await stream.confirm()
    await leave(valkey, nodes)
    await stream.nodes.refresh()
    valkey.ask("DEL", stream.keys.log)
    assert values(await all_of(stream)) == [*numbers(0, 3), b"plain"]
    (_, fields) = valkey.ask("XRANGE", stream.keys.log, "-", "+")[-1]
    assert (fields[b"key"], fields[b"h:a"]) == (b"k", b"b")


async def test_a_newer_state_of_a_producer_is_not_taken_back(valkey: Valkey, nodes: Nodes) -> None:
    """Whoever restores may not know the newest batches: what is newer in the store wins."""
    keys, known = nodes.before.keys, b"0 0:0:5-0 1:1:6-0"
    for stored, kept in (
        (b"0 2:2:7-0", b"0 2:2:7-0"),
        (b"0 2:2:6-1", b"0 2:2:6-1"),
        (b"0 0:0:5-0", known),
        (None, known),
    ):
        valkey.ask("DEL", keys.producers)
        if stored is not None:
            valkey.ask("HSET", keys.producers, "7", stored)
        await nodes.before.scripts.run("restore_producers", [keys.producers, keys.meta], ["7", known])
        assert valkey.ask("HGET", keys.producers, "7") == kept


class Lost(NamedTuple):
    """Batches of a producer that the store lost while its node was away, each with the ids that it had."""

    stream: StreamPartition
    end: int
    ids: list[list[StreamId]]


@pytest.fixture(params=STREAMS)
async def lost(request: pytest.FixtureRequest, valkey: Valkey, store: Store) -> Lost:
    """Three records are there, two batches of two are lost; between the ids of those are others."""
    stream = await store.default.partition(await store.default.catalogue.create("orders", 1, request.param), 0)
    assert isinstance(stream, StreamPartition)
    await produce_each(stream, 0, 3)
    checkpoint, ids = valkey.checkpoint(), []
    for sequence in (3, 5):
        after = stream.ids.last.ms + 3
        await until(lambda after=after: server_ms(valkey) > after)  # type: ignore[misc]
        await produce(stream, *numbers(sequence, sequence + 2), producer=7, sequence=sequence)
        ids.append([parse_id(row[0]) for row in valkey.ask("XREVRANGE", stream.keys.log, "+", "-", "COUNT", 2)][::-1])
    stream.link.drop("the test keeps it away")
    valkey.go_back_to(checkpoint, start=False)
    keep_away(stream)
    valkey.start()
    return Lost(stream, stream.end, ids)


def server_ms(valkey: Valkey) -> int:
    seconds, microseconds = valkey.ask("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def keep_away(stream: Partition) -> None:
    address = stream.shard.link.address
    stream.shard.link.address = msgspec.structs.replace(address, path="/nowhere")


async def come_back(stream: Partition) -> None:
    address = stream.shard.link.address
    stream.shard.link.address = msgspec.structs.replace(address, path=stream.shard.reads.address.path)
    await until(lambda: stream.link.is_up)
    await stream.confirm()


@of_one_server
async def test_entries_that_redis_code_wrote_among_lost_ones_are_no_gap(valkey: Valkey, lost: Lost) -> None:
    stream, (first, second) = lost.stream, lost.ids
    theirs = [first[-1].next, StreamId(first[-1].ms + 1, 0), second[-1].next]
    for at, identity in enumerate(theirs):
        valkey.ask("XADD", stream.keys.log, str(identity), "value", f"theirs {at}")
    await come_back(stream)
    found = await all_of(stream)
    assert values(found) == [*numbers(0, 3), b"theirs 0", b"theirs 1", b"theirs 2"]
    offsets = [one.offset for one in found]
    assert [sorted(own_offsets(stream, ids)) for ids in lost.ids] == [
        [at for at in own_offsets(stream, ids) if any(gap.start <= at < gap.end for gap in stream.gaps)]
        for ids in lost.ids
    ]
    assert not any(gap.start <= at < gap.end for gap in stream.gaps for at in offsets)
    assert (len(stream.gaps), len(stream.replaced), stream.leader_epoch) == (2, 1, 1)
    assert store_of(stream).events["gaps"] == 2
    await wait_for_a_lease(stream)
    assert not (await produce(stream, *numbers(5, 7), producer=7, sequence=5)).duplicate


@of_one_server
async def test_lost_batches_behind_what_others_wrote_are_restored(valkey: Valkey, lost: Lost) -> None:
    stream, (first, second) = lost.stream, lost.ids
    valkey.ask("XADD", stream.keys.log, str(first[-1].next), "value", "theirs")
    await come_back(stream)
    assert values(await all_of(stream)) == [*numbers(0, 3), b"theirs", *numbers(5, 7)]
    (gap,) = stream.gaps
    start, end = own_offsets(stream, first)[0], own_offsets(stream, first)[-1] + 1
    assert (gap.start <= start, gap.end) == (True, end)
    assert (await produce(stream, *numbers(5, 7), producer=7, sequence=5)).duplicate
    assert second[0] in {parse_id(row[0]) for row in valkey.ask("XRANGE", stream.keys.log, "-", "+")}


@of_one_server
async def test_entries_that_took_the_ids_of_lost_ones_are_not_taken_for_them(valkey: Valkey, lost: Lost) -> None:
    stream, all_ids = lost.stream, [one for ids in lost.ids for one in ids]
    for at, identity in enumerate(all_ids):
        valkey.ask("XADD", stream.keys.log, str(identity), "value", f"theirs {at}")
    await come_back(stream)
    assert values(await all_of(stream)) == [*numbers(0, 3), *(b"theirs %d" % at for at in range(4))]
    assert (stream.gaps, stream.leader_epoch, len(stream.replaced)) == ([], 1, 1)
    await wait_for_a_lease(stream)
    assert not (await produce(stream, *numbers(5, 7), producer=7, sequence=5)).duplicate


def own_offsets(stream: StreamPartition, ids: list[StreamId]) -> list[int]:
    return [stream.ids.offset_of(one) for one in ids]


@of_one_server
async def test_only_what_is_not_in_the_stream_of_batches_that_cannot_be_restored_is_lost(
    valkey: Valkey, lost: Lost
) -> None:
    """Another node may have been faster with some of them, and somebody wrote behind those."""
    stream, (first, second) = lost.stream, lost.ids
    batches = list(stream.tail.since(own_offsets(stream, first)[0]))
    for identity, number in zip(first, (3, 4), strict=True):
        valkey.ask("XADD", stream.keys.log, str(identity), "value", str(number))
    valkey.ask("XADD", stream.keys.log, str(second[-1].next), "value", "theirs")
    await come_back(stream)
    assert values(await all_of(stream)) == [*numbers(0, 5), b"theirs"]
    assert (stream.gaps, stream.replaced) == ([Gap(batches[1].base, batches[1].end)], [gap_of(stream, second)])
    assert await compare(stream, batches[:1]) is None


def gap_of(stream: StreamPartition, ids: list[StreamId]) -> Gap:
    offsets = own_offsets(stream, ids)
    return Gap(offsets[0], offsets[-1] + 1)


@pytest.mark.parametrize("configs", STREAMS)
async def test_the_index_of_a_restored_stream_is_stored_again(
    valkey: Valkey, open_store: OpenStore, configs: dict[str, str]
) -> None:
    """Each point with the entry that is at it, or the next one, also where ids tell no offsets."""
    store = await open_store(index_interval_bytes=1)
    stream = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    assert isinstance(stream, StreamPartition)
    await produce_each(stream, 0, 3)
    valkey.ask("XADD", stream.keys.log, f"{server_ms(valkey)}-{1 << 20}", "value", "not restored")
    await stream.confirm()
    await produce_each(stream, 3, 6)
    await stream.confirm()  # behind the last point
    points = valkey.stream(stream.keys.index)
    valkey.ask("DEL", stream.keys.index, stream.keys.log)
    stream.doubt()
    assert values(await all_of(stream)) == numbers(0, 6)
    entries = [row[0] for row in valkey.stream(stream.keys.log)]
    entries.insert(3, entries[3])
    assert valkey.stream(stream.keys.index) == [
        (point, fields | {b"i": entry}) for (point, fields), entry in zip(points, entries, strict=True)
    ]
    other = await on(await open_store(index_interval_bytes=1), stream)
    assert (other.index.offsets, other.index.totals) == (stream.index.offsets, stream.index.totals)
    assert await all_of(other) == await all_of(stream)


@pytest.mark.parametrize("configs", STREAMS)
async def test_an_index_that_lost_its_first_points_is_made_again(
    valkey: Valkey, open_store: OpenStore, configs: dict[str, str]
) -> None:
    store = await open_store(index_interval_bytes=1)
    stream = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    offsets = await produce_each(stream, 0, 6)
    points = valkey.stream(stream.keys.index)[:1]
    valkey.ask("XTRIM", stream.keys.index, "MAXLEN", 2)
    other = await on(await open_store(index_interval_bytes=1), stream)
    assert (other.index.offsets[0], other.index.entries) == (offsets[0], 6)
    assert await other.find_time(0) == await stream.find_time(0)
    await until(lambda: valkey.stream(stream.keys.index)[:1] == points)


@pytest.mark.parametrize("configs", STREAMS)
async def test_an_index_of_a_trimmed_stream_stays_as_it_is(
    valkey: Valkey, open_store: OpenStore, configs: dict[str, str]
) -> None:
    store = await open_store(index_interval_bytes=1)
    stream = await store.default.partition(await store.default.catalogue.create("orders", 1, configs), 0)
    offsets = await produce_each(stream, 0, 8)
    await stream.delete_before(offsets[2] + 1)
    valkey.ask("XTRIM", stream.keys.log, "MAXLEN", 3)
    points = valkey.stream(stream.keys.index)
    other = await on(await open_store(index_interval_bytes=1), stream)
    assert valkey.stream(stream.keys.index) == points
    assert list(other.index.offsets) == [int(point.split(b"-")[0]) for point, _ in points]
