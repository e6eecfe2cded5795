"""Decoding to Arrow: the same records as `wire` decodes, the same refusals, nothing of what was aborted."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.reader import whole_batches
from headrace.lake.records import decode as decoding
from headrace.lake.records.decode import SCHEMA, decode, spark_rows
from headrace.wire.batch import HEADER_BYTES, LOG_APPEND_TIME, crc_of, pack_header, read_header
from headrace.wire.batch_errors import BatchError, BatchTooLarge
from headrace.wire.compression import CODECS, Compression, compress
from headrace.wire.records import Record, decode_batch, encode_batch
from headrace.wire.schema import Buffer
from tests.lake.transactional import marker, transactional

NULLABLE = st.none() | st.binary(max_size=300)
NAMES = st.text(max_size=20) | st.binary(max_size=20).map(lambda name: name.decode("utf-8", "surrogateescape"))
HEADERS = st.lists(st.tuples(NAMES, NULLABLE), max_size=4)
FIELDS = st.tuples(st.integers(-(1 << 61), 1 << 61), NULLABLE, NULLABLE, HEADERS)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Batches of one partition, with gaps between and within them, of any codec and time."""
    made: list[bytes] = []
    offset = draw(st.integers(0, 1 << 60))
    for fields in draw(st.lists(st.lists(FIELDS, min_size=1, max_size=8), min_size=1, max_size=4)):
        base = offset
        records: list[Record] = []
        for values in fields:
            records.append(Record(offset, *values))
            offset += draw(st.integers(1, 200))
        made.append(
            encode_batch(
                records,
                base_offset=base,
                compression=draw(st.sampled_from(CODECS)),
                timestamp_type=draw(st.sampled_from(("CreateTime", "LogAppendTime"))),
            )
        )
    return made


def rows(given_batches: Sequence[Buffer], **options: Any) -> list[dict[str, Any]]:
    """All rows, each Arrow batch checked for its schema and consistency."""
    found: list[dict[str, Any]] = []
    for batch in decode(given_batches, topic="orders", partition=3, **options):
        batch.validate(full=True)
        assert batch.schema == SCHEMA
        assert batch.num_rows > 0
        found += batch.to_pylist()
    return found


def expected(given_batches: Sequence[bytes]) -> list[dict[str, Any]]:
    """The rows that the decoder of `wire` gives."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": int(bool(read_header(batch).attributes & LOG_APPEND_TIME)),
            "headers": [
                {"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
                for name, value in record.headers
            ]
            or None,
        }
        for batch in given_batches
        for record in decode_batch(batch)
    ]


@given(batches())
@settings(max_examples=200, deadline=None)
def test_rows_are_the_records_that_wire_decodes(made: list[bytes]) -> None:
    assert rows(made) == expected(made)
    assert rows([memoryview(batch) for batch in made]) == expected(made)
    # As they come in a response, where uncompressed ones are read in place.
    response = memoryview(b"before" + b"".join(made))
    assert rows(list(whole_batches(response[6:]))) == expected(made)


@given(batches(), st.data())
@settings(max_examples=100, deadline=None)
def test_only_the_offsets_asked_for_come(made: list[bytes], data: st.DataObject) -> None:
    all_rows = expected(made)
    first, last = all_rows[0]["offset"], all_rows[-1]["offset"]
    start = data.draw(st.integers(max(first - 2, 0), last + 2))
    stop = data.draw(st.integers(start, last + 3))
    wanted = [row for row in all_rows if start <= row["offset"] < stop]
    assert rows(made, first_offset=start, stop_offset=stop) == wanted


def refusal(made: bytes, how: str) -> str | None:
    """The error that one decoder gives, None if it takes the batch."""
    try:
        if how == "wire":
            decode_batch(made)
        else:
            rows([made], first_offset=-(1 << 63))
    except BatchError as error:
        return f"{type(error).__name__}: {error}"
    return None


@given(batches(), st.data())
@settings(max_examples=400, deadline=None)
def test_damage_that_a_right_crc_covers_is_refused_as_by_wire(made: list[bytes], data: st.DataObject) -> None:
    batch = bytearray(made[0])
    # Behind the CRC, except the attributes: a batch that they make a control batch is none to compare.
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(HEADER_BYTES - 38, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        batch = batch[: data.draw(st.integers(HEADER_BYTES, len(batch)))]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc_of(batch))
    damaged = bytes(batch)
    assert refusal(damaged, "arrow") == refusal(damaged, "wire")
    if refusal(damaged, "wire") is None:
        assert rows([damaged], first_offset=-(1 << 63)) == expected([damaged])


def test_a_wrong_crc_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"k", b"v")]))
    batch[-2] ^= 1
    with pytest.raises(BatchError, match="CRC"):
        rows([batch])


def test_a_payload_that_unfolds_without_end_is_refused() -> None:
    template = read_header(encode_batch([Record(0, 0)]))
    payload = compress(bytes(200 * 1024 * 1024), "zstd")
    header = msgspec.structs.replace(template, length=HEADER_BYTES + len(payload), attributes=CODECS.index("zstd"))
    header = msgspec.structs.replace(header, crc=crc_of(pack_header(header) + payload))
    with pytest.raises(BatchTooLarge):
        rows([pack_header(header) + payload])


@pytest.mark.parametrize("codec", CODECS)
def test_large_input_comes_in_bounded_batches(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", 64 * 1024)
    monkeypatch.setattr(decoding, "ROWS_MAX", 300)
    records = [Record(i, i, b"%d" % i, bytes(100)) for i in range(5000)]
    made = [encode_batch(records[i : i + 500], base_offset=i, compression=codec) for i in range(0, 5000, 500)]
    found = list(decode(made, topic="orders", partition=3))
    assert max(batch.num_rows for batch in found) == 300
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(5000))


def test_what_transactions_aborted_and_their_markers_are_no_rows() -> None:
    log = [
        transactional(0, 2, producer_id=7),  # aborted
        transactional(2, 2, producer_id=8),  # committed
        encode_batch([Record(4, 0, None, b"plain")], base_offset=4),
        marker(5, 7, commits=False),
        transactional(6, 1, producer_id=7),  # the next transaction of the same producer, committed
        marker(7, 8, commits=True),
        marker(8, 7, commits=True),
        transactional(9, 1, producer_id=7, codec="lz4"),  # aborted again
        marker(10, 7, commits=False),
    ]
    kept = [row["offset"] for row in rows(log, aborted=[(7, 9), (7, 0)])]
    assert kept == [2, 3, 4, 6]
    # Read uncommitted: Fetch names no aborted transactions, and only the markers are left out.
    assert [row["offset"] for row in rows(log)] == [0, 1, 2, 3, 4, 6, 9]


def test_a_compacted_batch_without_records_is_no_row() -> None:
    header = msgspec.structs.replace(read_header(encode_batch([Record(0, 0)])), count=0, length=HEADER_BYTES)
    empty = pack_header(msgspec.structs.replace(header, crc=crc_of(pack_header(header))))
    assert rows([empty]) == []


def test_spark_rows_have_the_types_of_the_kafka_source_and_clamped_times() -> None:
    times = [0, 1_700_000_000_123, -1, (1 << 63) - 1, -(1 << 63)]
    # Each time is its batch's own base: between the last two no delta would fit.
    made = [encode_batch([Record(i, time, headers=[("h", b"v")])], base_offset=i) for i, time in enumerate(times)]
    (batch,) = decode(made, topic="orders", partition=0)
    assert batch.column("timestamp").to_pylist() == times
    shown = spark_rows(batch, headers=True)
    assert shown.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert shown.schema.names == SCHEMA.names
    seen = [value.replace(tzinfo=UTC) for value in shown.column("timestamp").to_pylist()]
    assert seen == [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ]
    assert spark_rows(batch, headers=False).schema.names == SCHEMA.names[:-1]


def test_headers_are_left_out_where_nobody_asks_for_them() -> None:
    made = encode_batch([Record(0, 0, headers=[("h", b"v")])])
    assert rows([made], headers=False)[0]["headers"] is None
