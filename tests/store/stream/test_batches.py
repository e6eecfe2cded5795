"""Entries as batches: every record at its offset, with its time, within the limits."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.stream.batches import BATCH_BYTES, Built, batches_of
from headrace.store.stream.records import record_fields
from headrace.wire.batch import crc_of, iter_headers
from headrace.wire.records import Record, decode_batch
from tests.store.stream.test_records import ID_MS, RECORDS, entry

BOTH_TIMES = pytest.mark.parametrize("append_time", [True, False])


def built(entries: list[Any], offsets: list[int], **limits: Any) -> list[Built]:
    limits = {"max_bytes": 1 << 30, "at_least_one": True, "append_time": False} | limits
    return batches_of(entries, offsets, leader_epoch=3, **limits)


def records_in(batches: list[Built]) -> list[Record]:
    return [record for batch in batches for record in decode_batch(batch.data)]


@given(st.lists(RECORDS, min_size=1, max_size=20), st.lists(st.integers(1, 1 << 33), min_size=20, max_size=20))
@settings(deadline=None)
def test_batches_hold_the_records_at_their_offsets(records: list[Record], steps: list[int]) -> None:
    offsets, offset = [], 1 << 50
    for _, step in zip(records, steps, strict=False):
        offset += step
        offsets.append(offset)
    entries = [entry(record_fields(record, with_time=True)) for record in records]
    batches = built(entries, offsets)
    expected = [msgspec.structs.replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)]
    assert records_in(batches) == expected
    assert all(low.end_offset <= high.base_offset for low, high in itertools.pairwise(batches))
    assert batches[-1].end_offset == offsets[-1] + 1
    headers = [header for batch in batches for _, header in iter_headers(batch.data)]
    assert all(header.leader_epoch == 3 for header in headers)


@BOTH_TIMES
def test_batches_stay_within_the_limit_but_for_the_first_record(append_time: bool) -> None:
    entries = [entry([b"value", b"x" * 1000], n) for n in range(10)]
    offsets = list(range(10))
    assert len(records_in(built(entries, offsets, max_bytes=5 * 1100, append_time=append_time))) == 5
    assert len(records_in(built(entries, offsets, max_bytes=10, append_time=append_time))) == 1
    assert built(entries, offsets, max_bytes=10, at_least_one=False, append_time=append_time) == []
    assert sum(len(batch.data) for batch in built(entries, offsets, max_bytes=4000, append_time=append_time)) <= 4000


@BOTH_TIMES
def test_a_long_read_is_cut_into_batches(append_time: bool) -> None:
    entries = [entry([b"value", b"x" * 10_000], n) for n in range(100)]
    batches = built(entries, list(range(100)), append_time=append_time)
    assert len(batches) > 3
    assert all(len(batch.data) < BATCH_BYTES + 11_000 for batch in batches)
    assert len(records_in(batches)) == 100


def test_they_can_be_left_out() -> None:
    entries = [entry([b"value", b"1"], 0), entry([b"score", b"2"], 1), entry([b"value", b"3"], 2)]
    assert [record.value for record in records_in(built(entries, [0, 1, 2], skips_foreign=True))] == [b"1", b"3"]


@given(st.lists(st.tuples(RECORDS, st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=30))
@settings(deadline=None)
def test_with_append_time_each_record_has_its_ids_time_and_batches_say_so(
    steps: list[tuple[Record, int, int]],
) -> None:
    entries, offsets, expected = [], [], []
    ms, sequence = ID_MS, 0
    for record, later_ms, skipped in steps:
        ms, sequence = ms + later_ms, 0 if later_ms else sequence + skipped
        offset = (ms << 10) + sequence
        entries.append((b"%d-%d" % (ms, sequence), record_fields(record, with_time=False)))
        offsets.append(offset)
        expected.append(msgspec.structs.replace(record, offset=offset, timestamp=ms))
    batches = built(entries, offsets, append_time=True)
    assert records_in(batches) == expected
    for batch in batches:
        [(_, header)] = iter_headers(batch.data)
        assert header.timestamp_type == "LogAppendTime"
        assert header.crc == crc_of(batch.data)
    assert len(batches) == len({entry_id.split(b"-")[0] for entry_id, _ in entries})


def test_with_append_time_a_time_of_its_own_is_not_the_records() -> None:
    [record] = records_in(built([entry([b"value", b"v", b"timestamp", b"1000"])], [7], append_time=True))
    assert (record.value, record.timestamp) == (b"v", ID_MS)
