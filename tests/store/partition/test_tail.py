"""The tail cache: one bound for all partitions, no hole inside a partition's tail, nothing kept of what is gone."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.partition.entries import Entry, take
from headrace.store.partition.tail import ENTRY_BYTES, Tail, TailCache, size_of
from headrace.wire.batch import stamp
from headrace.wire.records import Record, encode_batch

SIZE = ENTRY_BYTES + 100


def entry(base: int, size: int = 100, records: int = 1) -> Entry:
    return Entry(base, base + records, b"x" * size, b"")


def bases(tail: Tail) -> list[int]:
    return [one.base for one in tail.since(0)]


def test_the_oldest_entry_of_whichever_partition_leaves_first() -> None:
    cache = TailCache(3 * SIZE)
    one, other = Tail(cache), Tail(cache)
    one.add(entry(0))
    other.add(entry(0))
    one.add(entry(1))
    other.add(entry(1))
    assert (bases(one), bases(other)) == ([1], [0, 1])
    assert cache.size_bytes == 3 * SIZE


def test_a_hole_makes_what_lies_before_it_useless() -> None:
    cache = TailCache(10 * SIZE)
    tail = Tail(cache)
    tail.add(entry(0))
    tail.add(entry(5))
    assert bases(tail) == [5]
    assert cache.size_bytes == SIZE
    assert not tail.holds(0)
    assert tail.holds(5)


def test_an_entry_larger_than_the_bound_is_not_kept() -> None:
    cache = TailCache(SIZE - 1)
    tail = Tail(cache)
    tail.add(entry(0))
    assert (len(tail), tail.first, tail.last, cache.size_bytes) == (0, None, None, 0)


@pytest.mark.parametrize("size", [69, 1_000])
def test_the_bound_is_what_the_entries_take_in_memory(size: int) -> None:
    limit = 4 << 20
    cache = TailCache(limit)
    tails = [Tail(cache) for _ in range(3)]
    tracemalloc.start()
    try:
        for number in range(3 * limit // size_of(entry(0, size))):
            base = 1_000_000 + number // 3
            data = bytes(size - 1) + b"x"
            tails[number % 3].add(Entry(base, base + 1, data, f"76bd3e40e242{number:x}".encode()))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.75 * limit < taken_bytes <= limit


def test_reading_starts_at_the_entry_that_holds_the_offset() -> None:
    tail = Tail(TailCache(10_000))
    for base in (0, 3, 6, 9):
        tail.add(entry(base, records=3))
    assert [one.base for one in tail.since(7)] == [6, 9]
    assert [one.base for one in tail.since(100)] == [9]


def test_what_was_cleared_is_forgotten_altogether() -> None:
    cache = TailCache(10 * SIZE)
    tail = Tail(cache)
    for base in range(5):
        tail.add(entry(base))
    tail.clear()
    assert cache.size_bytes == 0
    assert not cache.order


def test_places_of_what_was_cleared_do_not_pile_up() -> None:
    cache = TailCache(10 * SIZE)
    stays, goes = Tail(cache), Tail(cache)
    for base in range(3):
        stays.add(entry(base))
    for base in range(100):
        goes.add(entry(base))
        goes.clear()
    assert (bases(stays), cache.size_bytes) == ([0, 1, 2], 3 * SIZE)
    assert len(cache.order) <= 2 * 3 + 1


@given(
    limit=st.integers(0, 10 * ENTRY_BYTES),
    most=st.integers(1, 10),
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["add", "skip", "clear"]), st.integers(1, 300))),
)
def test_whatever_happens_the_oldest_of_all_leave_and_tails_have_no_hole(
    limit: int, most: int, steps: list[tuple[int, str, int]]
) -> None:
    cache = TailCache(limit, most)
    tails, ends = [Tail(cache) for _ in range(3)], [0, 0, 0]
    kept: list[tuple[int, Entry]] = []
    for which, step, size in steps:
        if step in ("clear", "skip"):
            kept = [one for one in kept if one[0] != which]
        if step == "clear":
            tails[which].clear()
            continue
        added = entry(ends[which] + (10 if step == "skip" else 0), size)
        tails[which].add(added)
        kept.append((which, added))
        ends[which] = added.end
        while len(kept) > most or sum(size_of(one) for _, one in kept) > limit:
            kept.pop(0)
        for number, tail in enumerate(tails):
            assert list(tail.since(0)) == [one for its, one in kept if its == number]
        assert cache.size_bytes == sum(size_of(one) for _, one in kept)


@given(
    counts=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=4),
    dropped=st.integers(0, 3),
    offset=st.integers(0, 36),
    max_bytes=st.integers(0, 900),
    at_least_one=st.booleans(),
)
def test_what_is_read_is_cut_as_anywhere_else(
    counts: list[list[int]], dropped: int, offset: int, max_bytes: int, at_least_one: bool
) -> None:
    tail, base = Tail(TailCache(1 << 20)), 0
    for batches in counts:
        first, data = base, b""
        for count in batches:
            batch = bytearray(encode_batch([Record(at, 1, None, b"x", []) for at in range(count)]))
            stamp(batch, 0, base, 0)
            data, base = data + batch, base + count
        tail.add(Entry(first, base, data, b""))
    for _ in range(min(dropped, len(counts) - 1)):
        tail.drop_first()
    offset = min(offset, base - 1)  # a reader at the end is answered without a look at the tail
    found = tail.read(offset, max_bytes, at_least_one)
    if not tail.holds(offset):
        assert found is None
        return
    assert found == take((entry.data for entry in tail.since(offset)), offset, max_bytes, at_least_one)


def test_what_lies_behind_the_last_entry_is_not_known() -> None:
    """The log may end after a gap: a reader that was told that nothing is there would never get to the end."""
    tail = Tail(TailCache(10 * SIZE))
    tail.add(Entry(0, 1, bytes(encode_batch([Record(0, 0, b"k", b"v", [])])), b""))
    assert tail.read(0, 1000, True) is not None
    assert tail.read(1, 1000, True) is None
