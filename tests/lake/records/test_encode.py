"""Rows that become batches and come back as the same rows, by three decoders."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from headrace.lake.records import encode as encoding
from headrace.lake.records.decode import decode, table_rows
from headrace.lake.records.encode import EncodedBatch, encode
from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.wire.batch import check_crc
from headrace.wire.records import decode_batch

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=3)
Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows whose offsets rise, by ones, by holes and by more than a batch can say."""
    offset = draw(st.integers(0, 1 << 40))
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 30))):
        times = st.one_of(st.integers(1_700_000_000_000, 1_700_000_000_100), INT64)
        rows.append((offset, draw(times), draw(st.integers(0, 1)), draw(BYTES), draw(BYTES), draw(HEADERS)))
        offset += draw(st.one_of(st.just(1), st.integers(1, 500), st.integers(1, 1 << 33)))
    return rows


def as_table(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "partition": 3, "offset": offset, "timestamp": 0, "timestamp_ms": time, "timestamp_type": kind,
                "day": 0,
                "key": key, "value": value, "headers": [{"key": name, "value": held} for name, held in headers] or None,
            }
            for offset, time, kind, key, value, headers in rows
        ],
        schema=TABLE_SCHEMA,
    )  # fmt: skip


def by_wire(batches: list[EncodedBatch]) -> list[Row]:
    rows: list[Row] = []
    for batch in batches:
        header = check_crc(batch.content)
        assert (header.base_offset, header.last_offset) == (batch.first, batch.last)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        kind = int(header.timestamp_type == "LogAppendTime")
        records = decode_batch(batch.content)
        rows += [(r.offset, r.timestamp, kind, r.key, r.value, r.headers) for r in records]
        if not kind:
            assert header.max_timestamp == max(record.timestamp for record in records)
    return rows


@settings(deadline=None)
@given(tables())
def test_our_decoders_give_the_rows_back(rows: list[Row]) -> None:
    batches = encode(as_table(rows))
    assert by_wire(batches) == rows
    decoded = pa.Table.from_batches(
        [table_rows(part) for part in decode([batch.content for batch in batches], topic="t", partition=3)]
    )
    wanted = pa.Table.from_batches([as_table(rows)])
    for name in encoding.COLUMNS:
        assert decoded[name].to_pylist() == wanted[name].to_pylist()


@settings(deadline=None)
@given(tables())
def test_kafka_python_gives_the_rows_back(rows: list[Row]) -> None:
    read = MemoryRecords(b"".join(batch.content for batch in encode(as_table(rows))))
    found: list[Row] = []
    while (batch := read.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for r in batch]
    assert found == rows


@settings(deadline=None)
@given(tables(), st.integers(0, 30), st.integers(0, 30))
def test_a_slice_of_rows_is_encoded_as_if_it_were_alone(rows: list[Row], start: int, count: int) -> None:
    assert by_wire(encode(as_table(rows).slice(start, count))) == rows[start : start + count]


def test_batches_stay_near_their_size_and_a_larger_record_is_whole() -> None:
    values = [bytes(100)] * 30_000 + [bytes(3 << 20)] + [bytes(10_000)] * 300
    rows: list[Row] = [(n, n, 0, None, value, []) for n, value in enumerate(values)]
    batches = encode(as_table(rows))
    assert by_wire(batches) == rows
    sizes = [len(batch.content) for batch in batches]
    assert sorted(sizes)[-1] > 3 << 20
    assert sorted(sizes)[-2] < 1.1 * encoding.BATCH_BYTES
    assert len(batches) < 12


def test_records_of_one_append_time_share_a_batch_and_others_do_not() -> None:
    rows: list[Row] = [(n, 1000 + n // 10, 1, None, b"v", []) for n in range(40)]
    assert [(batch.first, batch.last) for batch in encode(as_table(rows))] == [(0, 9), (10, 19), (20, 29), (30, 39)]
