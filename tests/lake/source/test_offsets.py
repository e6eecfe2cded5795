"""Planning: which offsets a query reads, asked of a real broker; shares and splits that lose nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lake.connecting import OptionError
from headrace.lake.fetching import OffsetRange
from headrace.lake.source.offsets import Positions, QueryOffsets, admit, split_ranges
from headrace.lake.source.options import parse_options
from headrace.wire.errors import KafkaError
from headrace.wire.special_times import EARLIEST
from tests.lake.conftest import Topic

SIZES = st.lists(st.integers(0, 1_000_000), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 2_000_000))
def test_a_trigger_takes_its_limit_and_no_partition_waits_for_ever(sizes: list[int], limit: int) -> None:
    starts: Positions = {("orders", i): 100 * i for i in range(len(sizes))}
    ends = {("orders", i): 100 * i + size for i, size in enumerate(sizes)}
    admitted = admit(starts, ends, limit)
    taken = {p: admitted[p] - starts[p] for p in starts}
    assert sum(taken.values()) == min(limit, sum(sizes))
    assert all(0 <= taken[p] <= ends[p] - starts[p] for p in starts)
    if limit >= len(sizes):
        assert all(taken[p] > 0 for p in starts if ends[p] > starts[p])


@given(SIZES, st.none() | st.integers(1, 50), st.none() | st.integers(10_000, 1_000_000))
def test_split_ranges_cover_the_same_offsets(sizes: list[int], least: int | None, most: int | None) -> None:
    ranges = [OffsetRange("orders", i, 5, 5 + size) for i, size in enumerate(sizes)]
    pieces = split_ranges(ranges, least, most)
    assert all(piece.stop > piece.start for piece in pieces)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert sum(piece.stop - piece.start for piece in mine) == whole.stop - whole.start
        assert all(one.stop == next_one.start for one, next_one in pairwise(mine))
    if most is not None:
        assert all(piece.stop - piece.start <= most for piece in pieces)
    if least is not None and sum(sizes) >= least * len(sizes):
        assert len(pieces) >= least


def offsets_of(orders: Topic, **options: str) -> QueryOffsets:
    named = {"subscribePattern", "assign"} & set(options)
    needed = {name: value for name, value in orders.options.items() if not (named and name == "subscribe")}
    return QueryOffsets(orders.admin, parse_options(needed | options))


def test_partitions_are_chosen_by_name_by_pattern_and_one_by_one(orders: Topic) -> None:
    both = [(orders.name, 0), (orders.name, 1)]
    assert offsets_of(orders).partitions() == both
    assert offsets_of(orders, subscribePattern=orders.name[:-1] + ".").partitions() == both
    assert offsets_of(orders, subscribePattern=orders.name[:-1]).partitions() == []
    assert offsets_of(orders, assign=f'{{"{orders.name}": [1]}}').partitions() == both[1:]
    with pytest.raises(OptionError, match=f"{orders.name}-2, which does not exist"):
        offsets_of(orders, assign=f'{{"{orders.name}": [1, 2]}}').partitions()
    with pytest.raises(KafkaError, match="There is no topic 'nowhere'"):
        offsets_of(orders, subscribe="nowhere").partitions()


def test_bounds_are_resolved_by_offset_and_by_time(orders: Topic) -> None:
    for time in (1000, 2000, 3000):
        orders.send([b"x", b"y"], timestamp_ms=time)
    orders.send([b"z"], partition=1, timestamp_ms=1000)
    name, first, second = orders.name, (orders.name, 0), (orders.name, 1)
    both = [first, second]

    assert offsets_of(orders).starts(both, EARLIEST) == {first: 0, second: 0}
    assert offsets_of(orders).ends(both) == {first: 6, second: 1}
    given = f'{{"{name}": {{"0": 3, "1": -1}}}}'
    assert offsets_of(orders, startingOffsets=given).starts(both, EARLIEST) == {first: 3, second: 1}
    assert offsets_of(orders, endingOffsets=given).ends(both) == {first: 3, second: 1}

    assert offsets_of(orders, startingTimestamp="1000").starts(both, EARLIEST) == {first: 0, second: 0}
    assert offsets_of(orders, endingTimestamp="2000").ends(both) == {first: 2, second: 1}
    with pytest.raises(OptionError, match=f"older than the starting timestamp in {name}-1"):
        offsets_of(orders, startingTimestamp="2000").starts(both, EARLIEST)
    lenient = offsets_of(orders, startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest")
    assert lenient.starts(both, EARLIEST) == {first: 2, second: 1}
    each = offsets_of(orders, startingOffsetsByTimestamp=f'{{"{name}": {{"0": 3000, "1": 0}}}}')
    assert each.starts(both, EARLIEST) == {first: 4, second: 0}


def test_offsets_must_be_given_for_every_partition_that_is_read(orders: Topic) -> None:
    with pytest.raises(OptionError, match=f"needs exactly one starting offset: {orders.name}-1"):
        offsets_of(orders, startingOffsets=f'{{"{orders.name}": {{"0": 3}}}}').starts(
            [(orders.name, 0), (orders.name, 1)], EARLIEST
        )
