"""How many records lie behind a position in a stream: exact, or not said."""

from __future__ import annotations

import pytest

from headrace.store.store import Store
from headrace.store.stream.lag import records_from
from headrace.store.stream.partition import StreamPartition
from tests.store.conftest import OpenStore
from tests.store.partition.test_contract import all_of
from tests.store.produced import produce
from tests.store.servers import Valkey
from tests.store.stream.test_partition import add, open_stream

LARGE = b"x" * 20_000
RECORDS = 500
"""Together several times what is counted one by one."""


@pytest.fixture
async def large(store: Store) -> tuple[StreamPartition, list[int]]:
    """A partition and the offsets of its records."""
    partition = await open_stream(store)
    for _ in range(RECORDS // 5):
        await produce(partition, *[LARGE] * 5)
    return partition, [one.offset for one in await all_of(partition)]


async def test_every_position_in_a_small_stream_is_counted(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    assert await records_from(partition, 0) == 0
    for number in range(20):
        await produce(partition, *[b"v"] * (number % 3 + 1))
        add(valkey, partition, "by hand")
    offsets = [one.offset for one in await all_of(partition)]
    for at, offset in enumerate(offsets):
        assert await records_from(partition, offset) == len(offsets) - at
        assert await records_from(partition, offset + 1) == len(offsets) - at - 1
    assert await records_from(partition, 0) == len(offsets)
    assert await records_from(partition, partition.end) == 0


async def test_any_position_in_a_large_stream_is_counted_without_reading_it(
    valkey: Valkey, large: tuple[StreamPartition, list[int]], open_store: OpenStore
) -> None:
    partition, offsets = large
    for one in (partition, await open_stream(await open_store())):
        for at in range(0, RECORDS, 49):
            assert await records_from(one, offsets[at]) == RECORDS - at


async def test_what_was_trimmed_is_not_counted(
    valkey: Valkey, large: tuple[StreamPartition, list[int]], open_store: OpenStore
) -> None:
    partition, offsets = large
    valkey.ask("XTRIM", partition.keys.log, "MAXLEN", "=", 430)
    for one in (partition, await open_stream(await open_store())):
        assert await records_from(one, 0) == 430
        assert await records_from(one, offsets[0]) == 430
        for at in range(70, RECORDS, 49):
            assert await records_from(one, offsets[at]) == RECORDS - at


async def test_what_was_removed_from_the_middle_is_not_counted_and_where_that_cannot_be_told_nothing_is_said(
    valkey: Valkey, large: tuple[StreamPartition, list[int]], open_store: OpenStore
) -> None:
    partition, offsets = large
    for at in (10, 480, 490):
        assert valkey.ask("XDEL", partition.keys.log, str(partition.ids.natural_id(offsets[at]))) == 1
    assert await records_from(partition, 0) == RECORDS - 3
    assert await records_from(partition, offsets[20]) == RECORDS - 20 - 2
    assert await records_from(partition, offsets[250]) is None
    assert await records_from(partition, offsets[485]) == RECORDS - 485 - 1
    assert await records_from(partition, partition.end) == 0


async def test_what_came_a_moment_ago_counts(valkey: Valkey, store: Store) -> None:
    partition = await open_stream(store)
    base = (await produce(partition, b"read")).base_offset
    for number in range(1, 4):
        add(valkey, partition, "new")
        assert await records_from(partition, base + 1) == number
