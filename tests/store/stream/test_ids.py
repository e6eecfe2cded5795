"""Offsets of stream entries: they rise whatever the ids are, lead back to their entries, and all nodes agree."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.partition.entries import LAST_SEQUENCE
from headrace.store.stream.ids import LAST_MS, NATURAL_LIMIT, StreamId, StreamIds, parse_id
from headrace.store.topic_configs.table import MOST_SEQUENCE_BITS

NOW_MS = 1_794_000_000_000
INT64_MAX = (1 << 63) - 1
MOST_BITS = st.integers(0, MOST_SEQUENCE_BITS)


def raw(ids: list[StreamId]) -> list[bytes]:
    return [str(one).encode() for one in ids]


def mapped(bits: int, ids: list[StreamId]) -> tuple[StreamIds, list[int]]:
    """All entries read at once."""
    stream = StreamIds(bits)
    reading = stream.read(raw(ids))
    stream.accept(reading)
    return stream, reading.offsets


def first_at(stream: StreamIds, ids: list[StreamId], offset: int) -> StreamId | None:
    """What a reader finds who looks where `place` says, as XRANGE would."""
    run, start = stream.locate(offset)
    if run is not None:
        within = [one for one in ids if one.ms == run.ms and one >= run]
        if within:
            return within[0]
    return next((one for one in ids if one >= start), None)


@st.composite
def histories(draw: st.DrawFn) -> list[StreamId]:
    """Rising ids as Redis lets them be: automatic ones, many in a millisecond, a clock set back, ids by hand."""
    ids: list[StreamId] = []
    last, clock_ms = StreamId(0, 0), draw(st.sampled_from([0, 1, 977, NOW_MS, 1 << 41, (1 << 53) - 3]))
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["clock", "back", "burst", "sequence", "future", "end"]))
        if kind == "clock":
            clock_ms += draw(st.integers(1, 5_000))
        elif kind == "back":
            clock_ms = max(clock_ms - draw(st.integers(1, 5_000)), 0)
        if kind in ("clock", "back", "burst"):
            for _ in range(draw(st.integers(1, 40 if kind == "burst" else 3))):
                last = max(StreamId(clock_ms, 0), last.next)
                ids.append(last)
            continue
        if kind == "sequence":
            by_hand = StreamId(last.ms, last.sequence + draw(st.integers(1, 1 << draw(st.integers(1, 63)))))
        elif kind == "future":
            by_hand = StreamId(
                last.ms + draw(st.integers(1, 1 << draw(st.integers(1, 62)))), draw(st.integers(0, 3000))
            )
        else:
            by_hand = StreamId(LAST_MS, LAST_SEQUENCE - draw(st.integers(0, 100)))
        if last < by_hand <= (LAST_MS, LAST_SEQUENCE) and by_hand.sequence <= LAST_SEQUENCE:
            last = by_hand
            ids.append(last)
    return [one for one in ids if one <= (LAST_MS, LAST_SEQUENCE)]


def test_the_arithmetic() -> None:
    ten = StreamIds(10)
    assert ten.natural(StreamId(1234567890123, 5)) == 1264197519485957
    assert ten.natural_id(1264197519485957) == StreamId(1234567890123, 5)
    assert ten.natural_id(999999999) == StreamId(976562, 511)
    assert ten.natural(StreamId(976562, 511)) == 999999999


@given(MOST_BITS, st.integers(0, NATURAL_LIMIT - 1))
def test_every_offset_has_its_entry_and_every_entry_its_offset(bits: int, offset: int) -> None:
    stream = StreamIds(bits)
    entry = stream.natural_id(offset)
    assert entry.sequence < 1 << bits
    assert stream.natural(entry) == offset
    assert parse_id(str(entry)) == entry


@given(MOST_BITS, histories())
@settings(max_examples=300, deadline=None)
def test_offsets_rise_and_stay_within_64_bits(bits: int, ids: list[StreamId]) -> None:
    stream, offsets = mapped(bits, ids)
    assert all(low < high for low, high in itertools.pairwise(offsets))
    assert all(0 <= offset < INT64_MAX for offset in offsets)
    assert [stream.offset_of(one) for one in ids] == offsets == stream.offsets_of(raw(ids))


@given(MOST_BITS, histories(), st.data())
@settings(max_examples=300, deadline=None)
def test_an_offset_leads_to_the_first_entry_at_or_above_it(bits: int, ids: list[StreamId], data: st.DataObject) -> None:
    stream, offsets = mapped(bits, ids)
    near = [offset + step for offset in offsets for step in (-1, 0, 1)]
    for offset in [*near, data.draw(st.integers(0, INT64_MAX)), 0]:
        expected = next((one for one, found in zip(ids, offsets, strict=True) if found >= offset), None)
        assert first_at(stream, ids, offset) == expected


@given(MOST_BITS, histories(), st.data())
@settings(max_examples=200, deadline=None)
def test_an_offset_leads_to_the_right_entry_after_any_were_removed(
    bits: int, ids: list[StreamId], data: st.DataObject
) -> None:
    stream, offsets = mapped(bits, ids)
    kept = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    left = [one for one in ids if one in kept]
    for offset in [offset + step for offset in offsets for step in (-1, 0, 1)]:
        expected = next((one for one in left if stream.offset_of(one) >= offset), None)
        assert first_at(stream, left, offset) == expected


@given(MOST_BITS, histories(), st.data())
@settings(max_examples=200, deadline=None)
def test_nodes_that_read_in_different_portions_agree(bits: int, ids: list[StreamId], data: st.DataObject) -> None:
    whole, offsets = mapped(bits, ids)
    node, found, at = StreamIds(bits), [], 0
    while at < len(ids):
        size = data.draw(st.integers(1, 10))
        reading = node.read(raw(ids[at : at + size]))
        found += reading.offsets
        node.accept(reading)
        at += size
    assert (found, node.exceptions, node.last, node.last_offset) == (
        offsets,
        whole.exceptions,
        whole.last,
        whole.last_offset,
    )


@given(MOST_BITS, histories(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_node_that_begins_anywhere_with_the_table_agrees(bits: int, ids: list[StreamId], data: st.DataObject) -> None:
    whole, offsets = mapped(bits, ids)
    begin = data.draw(st.integers(0, len(ids)))
    node = StreamIds(bits)
    node.load(whole.exceptions)
    if begin:
        node.know(ids[begin - 1], offsets[begin - 1])
    reading = node.read(raw(ids[begin:]))
    assert reading.offsets == offsets[begin:]
    assert not reading.exceptions


@given(MOST_BITS, histories(), st.integers(0, 1 << 31))
@settings(max_examples=200, deadline=None)
def test_what_the_broker_writes_gets_the_offsets_it_was_promised(bits: int, ids: list[StreamId], gap: int) -> None:
    stream, offsets = mapped(bits, ids)
    floor = stream.last_offset + gap
    free = stream.next_free(floor)
    if free.first.sequence > LAST_SEQUENCE:
        return
    assert free.first > (ids[-1] if ids else StreamId(0, 0))
    assert free.offset >= max([floor, *(offset + 1 for offset in offsets[-1:])])
    reading = stream.read(raw([free.first]))
    assert reading.offsets == [free.offset]
    assert not reading.exceptions


def test_what_the_broker_writes_in_the_millisecond_of_an_exception_follows_it() -> None:
    """One entry too many in a millisecond: the next one is exceptional, though later natural offsets are free."""
    burst = [StreamId(NOW_MS, sequence) for sequence in range(1025)]
    stream, offsets = mapped(10, [*burst, StreamId(NOW_MS + 1, 0)])
    free = stream.next_free(0)
    assert (free.first, free.offset, free.is_natural) == (StreamId(NOW_MS + 1, 1), offsets[-1] + 1, False)
    assert stream.read(raw([free.first])).offsets == [free.offset]


def test_five_thousand_entries_in_one_millisecond_push_the_next_ones_on_and_then_it_is_over() -> None:
    burst = [StreamId(NOW_MS, sequence) for sequence in range(5000)]
    after = [StreamId(NOW_MS + 1, 0), StreamId(NOW_MS + 1, 1), StreamId(NOW_MS + 2, 0), StreamId(NOW_MS + 50, 0)]
    stream, offsets = mapped(10, burst + after)
    base = NOW_MS << 10
    assert offsets[:5003] == list(range(base, base + 5003))
    assert offsets[-1] == NOW_MS + 50 << 10
    assert len(stream.exceptions) == 3


def test_the_table_keeps_what_is_needed_when_old_entries_go() -> None:
    ids = [StreamId(ms, sequence) for ms in (1, 5, 9) for sequence in range(3)]
    stream, offsets = mapped(1, ids)
    before = list(stream.exceptions)
    assert stream.forget_before(offsets[5]) == before[1].id
    assert [stream.offset_of(one) for one in ids[4:]] == offsets[4:]
