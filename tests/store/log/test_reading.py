"""Reading by offset and by time, against a plain list of all records."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.store.log import trim
from headrace.store.log.partition import LogPartition
from headrace.store.partition.entries import Batches
from headrace.store.partition.tail import ENTRY_BYTES
from headrace.store.store import Store
from headrace.wire.batch import iter_headers
from tests.store.conftest import OpenStore
from tests.store.produced import (
    Stored,
    assert_dense,
    batch,
    log_partition,
    produce,
    records_of,
    same_partition,
    submit,
    values,
)
from tests.store.servers import Valkey

one_server = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
names = (f"topic{n}" for n in count())

TIMESTAMPS = st.one_of(st.integers(0, 500), st.integers(0, 500_000))
BATCHES = st.lists(st.tuples(st.lists(TIMESTAMPS, min_size=1, max_size=4), st.integers(0, 120)), min_size=1, max_size=4)
"""Batches that arrive at once: their records' times, and the size of their values."""
GROUPS = st.lists(BATCHES, min_size=1, max_size=6)


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    """Short intervals, so that small logs have many index points; all examples of a test share it."""
    return await open_store(index_interval_bytes=300, append_entry_bytes=500)


class Model:
    """A partition, and all that was ever appended to it."""

    def __init__(self, partition: LogPartition) -> None:
        self.partition = partition
        self.batches: list[bytes] = []

    async def append(self, group: list[tuple[list[int], int]]) -> None:
        made = [batch([b"v" * size] * len(times), timestamps=times) for times, size in group]
        await asyncio.gather(*(submit(self.partition, data, header) for data, header in made))
        self.batches += [bytes(data) for data, _ in made]

    @property
    def records(self) -> list[Stored]:
        return [record for one in self.batches for record in records_of(one)]

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        found = b""
        for one in self.batches:
            [(_, header)] = iter_headers(one)
            if header.next_offset <= offset:
                continue
            if len(found) + len(one) > max_bytes and (found or not at_least_one):
                break
            found += one
        return found

    def find_time(self, timestamp: int, log_start: int) -> tuple[int, int] | None:
        for record in self.records:
            if record.offset >= log_start and record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return None


async def model_of(store: Store, groups: list[list[tuple[list[int], int]]]) -> Model:
    topic = await store.default.catalogue.create(next(names), 1, {})
    model = Model(await log_partition(store, topic, 0))
    for group in groups:
        await model.append(group)
    return model


def joined(taken: Batches | None) -> bytes:
    assert taken is not None
    data = b"".join(taken.chunks)
    assert len(data) == taken.size_bytes
    return data


@one_server
@given(groups=GROUPS, at=st.floats(0, 1), max_bytes=st.integers(0, 2000), at_least_one=st.booleans())
async def test_the_cache_and_redis_give_the_batches_from_an_offset_on(
    store: Store, groups: list[list[tuple[list[int], int]]], at: float, max_bytes: int, at_least_one: bool
) -> None:
    model = await model_of(store, groups)
    partition = model.partition
    offset = round(at * partition.end)
    expected = model.read(offset, max_bytes, at_least_one)
    assert joined(partition.read_cached(offset, max_bytes, at_least_one)) == expected
    found = joined(await partition.read(offset, max_bytes, at_least_one))
    assert expected.startswith(found)  # how many entries to ask for is an estimate: it may be less, never nothing
    assert bool(found) == bool(expected)


@one_server
@given(groups=GROUPS, cut=st.floats(0, 1), timestamp=TIMESTAMPS, more=BATCHES)
async def test_a_time_finds_the_first_record_that_is_not_older(
    store: Store,
    groups: list[list[tuple[list[int], int]]],
    cut: float,
    timestamp: int,
    more: list[tuple[list[int], int]],
) -> None:
    """Whatever the order of the times, before and after trimming, here and on a node that opens the log afresh."""
    model = await model_of(store, groups)
    partition = model.partition
    assert await partition.find_time(timestamp) == model.find_time(timestamp, 0)
    await trim.delete_before(partition, round(cut * partition.end))
    assert await partition.find_time(timestamp) == model.find_time(timestamp, partition.log_start)
    await model.append(more)
    fresh = LogPartition(store.default.context, partition.topic, 0)
    await fresh.confirm()
    for one in (partition, fresh):
        assert await one.find_time(timestamp) == model.find_time(timestamp, partition.log_start)
        assert await one.find_time(500_001) is None


@one_server
@given(groups=GROUPS, more=BATCHES, lost=st.booleans())
async def test_every_node_makes_the_same_index(
    store: Store,
    valkey: Valkey,
    groups: list[list[tuple[list[int], int]]],
    more: list[tuple[list[int], int]],
    lost: bool,
) -> None:
    """Read from what is stored, or from the log alone where that was lost."""
    model = await model_of(store, groups)
    await store.link.call("PING")  # points are written behind the appends
    if lost:
        valkey.ask("DEL", model.partition.keys.index)
    fresh = LogPartition(store.default.context, model.partition.topic, 0)
    await fresh.confirm()
    await model.append(more)
    fresh.doubt()
    await fresh.confirm()
    ours, theirs = model.partition.index, fresh.index
    assert theirs.offsets == ours.offsets
    assert theirs.timestamps == ours.timestamps
    assert theirs.sizes == ours.sizes
    assert theirs.counts == ours.counts
    assert (theirs.max_timestamp, theirs.size_bytes, theirs.entries) == (
        ours.max_timestamp,
        ours.size_bytes,
        ours.entries,
    )


async def test_a_read_never_goes_past_the_end_that_is_known(
    partition: LogPartition, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(partition, b"a")
    other = await same_partition(await open_store(), partition)

    async def learn_nothing() -> None:
        """Background work must not tell it of the other's record."""

    monkeypatch.setattr(partition, "confirm", learn_nothing)
    await produce(other, b"b")
    assert values([*records_of(joined(await partition.read(0, 1000, True)))]) == [b"a"]
    assert joined(await partition.read(1, 1000, True)) == b""


async def test_reading_on_from_where_the_last_read_ended_gives_everything_once(partition: LogPartition) -> None:
    for n in range(60):
        await produce(partition, *[b"%d" % n * (n * 37 % 50 + 1)] * (n % 3 + 1))
    found: list[Stored] = []
    while len(found) < partition.end:
        found += records_of(joined(await partition.read(len(found), 700, True)))
    assert_dense(found)


async def test_what_is_read_at_once_ends_where_records_were_lost(valkey: Valkey, partition: LogPartition) -> None:
    """Among them may be the marker of an aborted transaction: without it clients skip what its producer wrote later."""
    for value in (b"before", b"lost", b"behind"):
        await produce(partition, value)
    partition.tail.clear()
    valkey.ask("XDEL", partition.keys.log, "1-1")
    found = [records_of(joined(await partition.read(offset, 10_000, True))) for offset in (0, 1)]
    assert [[record.value for record in records] for records in found] == [[b"before"], [b"behind"]]


async def test_a_batch_larger_than_the_limit_is_given_alone_or_not_at_all(partition: LogPartition) -> None:
    await produce(partition, b"x" * 10_000)
    await produce(partition, b"y")
    for at_least_one, offsets in ((True, [0]), (False, [])):
        for taken in (
            partition.read_cached(0, 100, at_least_one),
            await partition.read(0, 100, at_least_one),
        ):
            assert [record.offset for record in records_of(joined(taken))] == offsets


async def test_the_cache_says_when_it_does_not_reach_back_far_enough(open_store: OpenStore) -> None:
    store = await open_store(tail_cache_bytes=6 * (ENTRY_BYTES + 170))
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    for n in range(20):
        await produce(partition, b"%d" % n * 50)
    assert partition.read_cached(0, 1 << 20, True) is None
    assert store.tails.size_bytes <= store.options.tail_cache_bytes
    first = partition.tail.first
    assert first is not None
    assert joined(partition.read_cached(first.base, 1 << 20, True)) == joined(
        await partition.read(first.base, 1 << 20, True)
    )
