"""Records: what is encoded comes back, and a hostile batch gives one of our errors within bounds."""

import contextlib
import struct
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.batch import (
    HEADER_BYTES,
    check_crc,
    check_produced,
    crc_of,
    pack_header,
    read_header,
    stamp_max_timestamp,
)
from headrace.wire.batch_errors import BatchError, BatchTooLarge, CorruptBatch, InvalidBatch, UnsupportedFormat
from headrace.wire.compression import CODECS, Compression, compress
from headrace.wire.records import Record, decode_batch, encode_batch
from headrace.wire.times import newest_time
from headrace.wire.varint import encode_varint, encode_varlong
from tests.wire.skimmed import keyless, newest

NOW = 1_700_000_000_000
MIB = 1024 * 1024

NULLABLE = st.none() | st.binary(max_size=300)
# Any bytes make a header name: those that are not UTF-8 come as surrogate escapes.
NAMES = st.text(max_size=20) | st.binary(max_size=20).map(lambda name: name.decode("utf-8", "surrogateescape"))
FIELDS = st.tuples(
    st.integers(-(1 << 40), 1 << 45), NULLABLE, NULLABLE, st.lists(st.tuples(NAMES, NULLABLE), max_size=4)
)


@st.composite
def consecutive(draw: st.DrawFn) -> list[Record]:
    base = draw(st.integers(0, 1 << 60))
    return [Record(base + i, *fields) for i, fields in enumerate(draw(st.lists(FIELDS, min_size=1, max_size=20)))]


def raw_batch(payload: bytes, count: int, *, codec: Compression = "none", **changes: int) -> bytes:
    """A batch around any payload, with a CRC that is right: what a client can send on purpose."""
    template = read_header(encode_batch([Record(0, NOW)]))
    header = msgspec.structs.replace(
        template,
        length=HEADER_BYTES + len(payload),
        attributes=CODECS.index(codec),
        count=count,
        last_offset_delta=count - 1,
    )
    header = msgspec.structs.replace(header, **changes)
    header = msgspec.structs.replace(header, crc=crc_of(pack_header(header) + payload))
    return pack_header(header) + payload


def raw_record(*, offset_delta: int = 0, timestamp_delta: int = 0, rest: bytes = b"\x01\x01\x00") -> bytes:
    """A record whose key, value and headers are `rest`: null, null and none by default."""
    body = b"\0" + encode_varlong(timestamp_delta) + encode_varint(offset_delta) + rest
    return encode_varint(len(body)) + body


@given(consecutive(), st.sampled_from(CODECS))
@settings(max_examples=200, deadline=None)
def test_records_come_back_as_they_were(records: list[Record], codec: Compression) -> None:
    base_offset = records[0].offset
    batch = encode_batch(records, base_offset=base_offset, compression=codec, leader_epoch=3)
    assert decode_batch(batch) == decode_batch(memoryview(batch)) == records
    header = check_crc(batch)
    assert (header.count, header.last_offset, header.leader_epoch) == (len(records), records[-1].offset, 3)
    latest = max(record.timestamp for record in records)
    assert header.max_timestamp == latest == newest(batch)


@given(st.lists(st.one_of(st.just(-1), st.integers(-9, NOW + 9)), min_size=1), st.sampled_from(CODECS), st.integers())
@settings(deadline=None)
def test_the_newest_time_is_found_whatever_the_header_says(times: list[int], codec: Compression, says: int) -> None:
    batch = bytearray(encode_batch([Record(at, time) for at, time in enumerate(times)], compression=codec))
    stamp_max_timestamp(batch, max(min(says, NOW), -NOW))
    assert newest_time(batch) == max(-1, *times)


def test_looking_for_times_unfolds_no_more_than_is_allowed() -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(MIB))], compression="zstd")
    assert newest_time(batch, max_bytes=2 * MIB) == NOW
    with pytest.raises(BatchTooLarge):
        newest_time(batch, max_bytes=MIB)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="no records"),
        pytest.param(raw_record()[:-1], id="a record that is cut off"),
        pytest.param(raw_record() + b"\0", id="a byte behind the last"),
        pytest.param(b"\x01" + raw_record(), id="a negative length"),
        pytest.param(raw_record(timestamp_delta=(1 << 63) - 1), id="a time beyond 64 bits"),
        pytest.param(b"\xff" * 20, id="no number"),
    ],
)
def test_times_of_broken_records_are_refused(payload: bytes) -> None:
    with pytest.raises(InvalidBatch):
        newest_time(raw_batch(payload, 1))


@given(consecutive(), st.sampled_from(CODECS))
@settings(deadline=None)
def test_what_is_encoded_for_a_produce_request_passes_its_checks(records: list[Record], codec: Compression) -> None:
    for index, record in enumerate(records):
        record.offset = index
    batch = encode_batch(records, compression=codec, producer_id=1, producer_epoch=0, base_sequence=0)
    assert check_produced(batch, MIB).compression == codec


def test_a_header_name_that_is_not_utf8_keeps_its_bytes() -> None:
    name = b"caf\xe9\xff"
    rest = b"\x01\x01\x02" + encode_varint(len(name)) + name + b"\x01"
    batch = raw_batch(raw_record(rest=rest), 1)
    [record] = decode_batch(batch)
    assert record.headers[0][0].encode("utf-8", "surrogateescape") == name
    assert encode_batch([record]) == batch


def test_gaps_between_offsets_survive() -> None:
    records = [Record(offset, NOW) for offset in (100, 107, 100 + (1 << 31) - 1)]
    assert decode_batch(encode_batch(records, base_offset=100)) == records


def test_a_log_append_time_batch_gives_all_records_the_newest_time() -> None:
    records = [Record(0, NOW + 5), Record(1, NOW)]
    batch = encode_batch(records, timestamp_type="LogAppendTime")
    assert [record.timestamp for record in decode_batch(batch)] == [NOW + 5] * 2


def test_an_empty_batch_as_compaction_leaves_it_has_no_records() -> None:
    batch = raw_batch(b"", 0, codec="gzip", last_offset_delta=4)
    assert decode_batch(batch) == []


@pytest.mark.parametrize(
    ("records", "base_offset"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([Record(1, NOW), Record(1, NOW)], 0, id="the same offset twice"),
        pytest.param([Record(4, NOW)], 5, id="below the base offset"),
        pytest.param([Record(1 << 31, NOW)], 0, id="too far from the base offset"),
        pytest.param([Record(0, -(1 << 63)), Record(1, (1 << 63) - 1)], 0, id="times too far apart"),
        pytest.param([Record(1 << 63, NOW)], 1 << 63, id="an offset beyond 64 bits"),
        pytest.param([Record(0, 1 << 63)], 0, id="a time beyond 64 bits"),
        pytest.param([Record(0, NOW, headers=[("\ud800", None)])], 0, id="a name that is no text"),
    ],
)
def test_what_the_format_cannot_say_is_not_encoded(records: list[Record], base_offset: int) -> None:
    with pytest.raises(InvalidBatch):
        encode_batch(records, base_offset=base_offset)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(raw_batch(raw_record(), 2), id="fewer records than the count"),
        pytest.param(raw_batch(raw_record() * 2, 1), id="more records than the count"),
        pytest.param(raw_batch(raw_record() + b"\0", 1), id="a byte behind the last record"),
        pytest.param(raw_batch(raw_record(), (1 << 31) - 1), id="a count of two billion"),
        pytest.param(raw_batch(raw_record(), -1), id="a negative count"),
        pytest.param(raw_batch(raw_record() * 2, 2), id="the same offset twice"),
        pytest.param(raw_batch(raw_record(offset_delta=-1), 1), id="a negative offset delta"),
        pytest.param(raw_batch(raw_record(offset_delta=1), 1), id="an offset beyond the header's last"),
        pytest.param(raw_batch(raw_record(timestamp_delta=(1 << 63) - 1), 1), id="a time beyond 64 bits"),
        pytest.param(raw_batch(b"\x01" + raw_record()[1:], 1), id="a negative record length"),
        pytest.param(raw_batch(b"\x0a" + raw_record()[1:], 1), id="a record length too short"),
        pytest.param(raw_batch(b"\x0e" + raw_record()[1:], 1), id="a record length too long"),
        pytest.param(raw_batch(raw_record(rest=encode_varint(1 << 30) + b"\x01\x00"), 1), id="a key of 1 GB"),
        pytest.param(raw_batch(raw_record(rest=b"\x01" + encode_varint(1 << 30) + b"\0"), 1), id="a value of 1 GB"),
        pytest.param(raw_batch(raw_record(rest=b"\x01\x01" + encode_varint(1 << 30)), 1), id="a billion headers"),
        pytest.param(raw_batch(raw_record(rest=b"\x01\x01\x01"), 1), id="a negative count of headers"),
        pytest.param(raw_batch(raw_record(rest=b"\x01\x01\x02\x01\x01"), 1), id="a header without a name"),
        pytest.param(raw_batch(raw_record(rest=b"\x01\x01\x02\x02a"), 1), id="a header without a value"),
        pytest.param(raw_batch(raw_record(rest=b"\xff" * 6), 1), id="a varint without an end"),
        pytest.param(raw_batch(raw_record(), 1, base_offset=(1 << 63) - 1, last_offset_delta=1), id="no 64-bit offset"),
        pytest.param(raw_batch(b"not gzip", 1, codec="gzip"), id="a payload that is not gzip"),
        pytest.param(raw_batch(b"", 1, codec="lz4"), id="a payload of nothing"),
    ],
)
def test_a_batch_whose_records_lie_is_refused_although_its_crc_is_right(batch: bytes) -> None:
    assert check_crc(batch)
    with pytest.raises(InvalidBatch):
        decode_batch(batch)
    with pytest.raises(InvalidBatch):
        keyless(batch)


def test_the_deep_check_wants_dense_offsets_where_reading_allows_gaps() -> None:
    batch = raw_batch(raw_record() + raw_record(offset_delta=2), 2, last_offset_delta=2)
    assert [record.offset for record in decode_batch(batch)] == [0, 2]
    with pytest.raises(InvalidBatch, match="0, 1, 2"):
        keyless(batch)


def test_a_compacted_topic_wants_a_key_on_every_record() -> None:
    batch = encode_batch([Record(0, NOW, key=b""), Record(1, NOW)])
    assert keyless(batch) == (1, [1])


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_byte_and_every_truncation_gives_one_of_our_errors(codec: Compression) -> None:
    records = [Record(i, NOW + i, b"k", b"value" * 5, [("h", b"1")]) for i in range(3)]
    batch = encode_batch(records, compression=codec)
    for pos in range(16, len(batch)):
        damaged = bytearray(batch)
        damaged[pos] ^= 0xFF
        with pytest.raises((CorruptBatch, UnsupportedFormat)):
            decode_batch(damaged)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode_batch(batch[:size])


@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_changed_on_purpose_under_a_right_crc_gives_records_or_one_of_our_errors(
    codec: Compression,
) -> None:
    records = [Record(i, NOW + i, b"k", b"value" * 5, [("h", b"1")]) for i in range(3)]
    batch = encode_batch(records, compression=codec)
    for pos in range(21, len(batch)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(batch)
            damaged[pos] ^= change
            struct.pack_into(">I", damaged, 17, crc_of(damaged))
            with contextlib.suppress(BatchError):
                decode_batch(damaged, max_bytes=MIB)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_decompresses_to_more_than_allowed_is_refused_within_bounds(codec: Compression) -> None:
    value = encode_varint(64 * MIB) + bytes(64 * MIB)
    batch = raw_batch(compress(raw_record(rest=b"\x01" + value + b"\x00"), codec), 1, codec=codec)
    del value
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decode_batch(batch, max_bytes=4 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 9 * MIB


def test_a_big_value_passes() -> None:
    value = bytes(range(256)) * (4 * 1024)
    records = [Record(0, NOW, None, value, []), Record(1, NOW, value, None, [("h", value)])]
    for codec in CODECS:
        assert decode_batch(encode_batch(records, compression=codec)) == records
