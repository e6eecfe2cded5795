"""Batch headers: a produced batch that lies is refused with Kafka's error, a good one is placed, cut and found."""

import contextlib
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.batch import (
    CONTROL,
    CRC_COVERS_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    check_produced,
    crc_of,
    end_offset,
    fit,
    iter_headers,
    may_be_transactional,
    pack_header,
    read_header,
    slice_from,
    stamp,
    stamp_append_time,
    stamp_producer,
)
from headrace.wire.batch_errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCompression,
    UnsupportedFormat,
)
from headrace.wire.records import Record, decode_batch, encode_batch

NOW = 1_700_000_000_000
MAX_BYTES = 1 << 20


def batch_of(count: int, base_offset: int = 0, **fields: Any) -> bytes:
    records = [Record(base_offset + i, NOW + i, b"key", b"value %d" % i) for i in range(count)]
    return encode_batch(records, base_offset=base_offset, **fields)


def with_header(batch: bytes, **changes: int) -> bytes:
    """The batch with other header fields and a CRC that covers them: what a client can send on purpose."""
    changed = pack_header(msgspec.structs.replace(read_header(batch), **changes)) + batch[HEADER_BYTES:]
    header = msgspec.structs.replace(read_header(changed), crc=crc_of(changed))
    return pack_header(header) + batch[HEADER_BYTES:]


GOOD = batch_of(3)


def test_a_good_batch_is_accepted_with_its_header() -> None:
    header = check_produced(memoryview(GOOD), MAX_BYTES)
    assert (header.base_offset, header.length, header.count) == (0, len(GOOD), 3)
    assert (header.last_offset, header.next_offset) == (2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2)
    assert (header.compression, header.timestamp_type) == ("none", "CreateTime")
    assert not header.is_control
    assert not header.is_transactional
    assert header.last_sequence == -1


def test_an_idempotent_batch_is_accepted_and_its_sequence_wraps_after_the_highest() -> None:
    batch = batch_of(3, producer_id=7, producer_epoch=1, base_sequence=(1 << 31) - 2)
    assert check_produced(batch, MAX_BYTES).last_sequence == 0


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(b"", InvalidBatch, id="nothing"),
        pytest.param(GOOD[:11], InvalidBatch, id="less than a length"),
        pytest.param(GOOD[:16], InvalidBatch, id="less than a magic"),
        pytest.param(GOOD[:60], InvalidBatch, id="less than a header"),
        pytest.param(GOOD[:-1], InvalidBatch, id="one byte missing"),
        pytest.param(GOOD + b"\0", InvalidBatch, id="one byte more"),
        pytest.param(GOOD + GOOD, InvalidBatch, id="two batches"),
        pytest.param(GOOD[:8] + struct.pack(">i", 13) + GOOD[12:], CorruptBatch, id="impossible length"),
        pytest.param(GOOD[:8] + struct.pack(">i", -1) + GOOD[12:], CorruptBatch, id="negative length"),
        pytest.param(GOOD[:8] + struct.pack(">i", 48) + GOOD[12:60], CorruptBatch, id="shorter than its header"),
        pytest.param(GOOD[:16] + b"\0" + GOOD[17:], InvalidBatch, id="magic 0"),
        pytest.param(GOOD[:16] + b"\1" + GOOD[17:], InvalidBatch, id="magic 1"),
        pytest.param(GOOD[:16] + b"\3" + GOOD[17:], CorruptBatch, id="magic 3"),
        pytest.param(GOOD[:16] + b"\xff" + GOOD[17:], CorruptBatch, id="magic -1"),
        pytest.param(GOOD[:-1] + b"\1", CorruptBatch, id="changed on the way"),
        pytest.param(with_header(GOOD, base_offset=5), InvalidBatch, id="base offset not 0"),
        pytest.param(with_header(GOOD, count=0, last_offset_delta=-1), InvalidBatch, id="no records"),
        pytest.param(with_header(GOOD, count=-1, last_offset_delta=-2), InvalidBatch, id="negative count"),
        pytest.param(with_header(GOOD, last_offset_delta=3), InvalidBatch, id="offsets beyond the count"),
        pytest.param(with_header(GOOD, last_offset_delta=1), InvalidBatch, id="offsets below the count"),
        pytest.param(
            with_header(GOOD, count=1 << 30, last_offset_delta=(1 << 30) - 1), InvalidBatch, id="count too high"
        ),
        pytest.param(with_header(GOOD, attributes=CONTROL), InvalidBatch, id="control"),
        pytest.param(with_header(GOOD, attributes=TRANSACTIONAL), InvalidBatch, id="transactional"),
        pytest.param(with_header(GOOD, attributes=DELETE_HORIZON), InvalidBatch, id="delete horizon"),
        pytest.param(with_header(GOOD, attributes=LOG_APPEND_TIME), InvalidTimestamp, id="append time"),
        pytest.param(with_header(GOOD, attributes=5), UnsupportedCompression, id="codec 5"),
        pytest.param(with_header(GOOD, attributes=7), UnsupportedCompression, id="codec 7"),
        pytest.param(with_header(GOOD, producer_id=7, producer_epoch=0), InvalidBatch, id="no sequence"),
        pytest.param(with_header(GOOD, producer_id=7, base_sequence=0), InvalidBatch, id="no epoch"),
        pytest.param(with_header(GOOD, producer_id=-2), InvalidBatch, id="producer id -2"),
    ],
)
def test_a_produced_batch_that_lies_is_refused_as_kafka_refuses_it(records: bytes, error: type[BatchError]) -> None:
    with pytest.raises(BatchError) as refused:
        check_produced(memoryview(records), MAX_BYTES)
    assert type(refused.value) is error
    assert str(refused.value).endswith(".")


def test_each_error_carries_the_code_of_kafka() -> None:
    codes = {error.__name__: error.error_code for error in BatchError.__subclasses__()}
    assert codes == {
        "CorruptBatch": 2,
        "BatchTooLarge": 10,
        "InvalidTimestamp": 32,
        "UnsupportedFormat": 43,
        "UnsupportedCompression": 76,
        "InvalidBatch": 87,
    }


def test_the_size_limit_counts_the_whole_batch() -> None:
    assert check_produced(GOOD, len(GOOD)).length == len(GOOD)
    with pytest.raises(BatchTooLarge):
        check_produced(GOOD, len(GOOD) - 1)


def test_zstd_is_refused_where_the_request_is_too_old_for_it() -> None:
    batch = batch_of(3, compression="zstd")
    assert check_produced(batch, MAX_BYTES).compression == "zstd"
    with pytest.raises(UnsupportedCompression):
        check_produced(batch, MAX_BYTES, zstd=False)


def test_every_flipped_bit_under_the_crc_is_found() -> None:
    for pos in range(CRC_COVERS_FROM, len(GOOD)):
        for bit in range(8):
            damaged = bytearray(GOOD)
            damaged[pos] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                check_produced(damaged, MAX_BYTES)
            with pytest.raises(CorruptBatch):
                check_crc(damaged)


@given(st.binary(max_size=120), st.integers(0, len(GOOD)))
@settings(deadline=None)
def test_any_bytes_are_a_batch_or_one_of_our_errors(data: bytes, keep: int) -> None:
    for records in (data, GOOD[:keep] + data, GOOD[:keep] + data + GOOD[keep + len(data) :]):
        for reader in (
            lambda b: check_produced(b, MAX_BYTES),
            lambda b: list(iter_headers(b)),
            lambda b: end_offset(b),
            lambda b: slice_from(b, 2),
            lambda b: fit(b, 0, len(b) - 1),
        ):
            with contextlib.suppress(BatchError):
                reader(records)


@pytest.mark.parametrize(("magic", "error"), [(0, UnsupportedFormat), (1, UnsupportedFormat), (3, CorruptBatch)])
def test_reading_another_format_says_so(magic: int, error: type[BatchError]) -> None:
    with pytest.raises(error):
        read_header(GOOD[:16] + bytes((magic,)) + GOOD[17:], 0)


@given(
    st.builds(
        BatchHeader,
        base_offset=st.integers(-(1 << 63), (1 << 63) - 1),
        length=st.integers(HEADER_BYTES, (1 << 31) - 1),
        leader_epoch=st.integers(-1, (1 << 31) - 1),
        magic=st.just(2),
        crc=st.integers(0, (1 << 32) - 1),
        attributes=st.integers(0, (1 << 15) - 1),
        last_offset_delta=st.integers(0, (1 << 31) - 1),
        base_timestamp=st.integers(-1, (1 << 63) - 1),
        max_timestamp=st.integers(-1, (1 << 63) - 1),
        producer_id=st.integers(-1, (1 << 63) - 1),
        producer_epoch=st.integers(-1, (1 << 15) - 1),
        base_sequence=st.integers(-1, (1 << 31) - 1),
        count=st.integers(0, (1 << 31) - 1),
    ),
    st.binary(max_size=10),
)
@settings(deadline=None)
def test_a_header_comes_back_from_any_position(header: BatchHeader, before: bytes) -> None:
    assert read_header(before + pack_header(header), len(before)) == header


def test_a_stamp_gives_offset_and_epoch_and_leaves_the_crc_right() -> None:
    entry = bytearray(GOOD + GOOD)
    stamp(memoryview(entry), len(GOOD), 1 << 40, 9)
    assert entry[: len(GOOD)] == GOOD
    header = check_crc(entry[len(GOOD) :])
    assert (header.base_offset, header.leader_epoch, header.next_offset) == (1 << 40, 9, (1 << 40) + 3)
    assert [record.offset for record in decode_batch(entry[len(GOOD) :])] == [(1 << 40) + i for i in range(3)]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_append_time_is_the_time_of_every_record(compression: str) -> None:
    batch = batch_of(3, compression=compression)
    entry = bytearray(GOOD + batch)
    stamp_append_time(entry, len(GOOD), NOW + 99)
    assert entry[: len(GOOD)] == GOOD
    stamped = entry[len(GOOD) :]
    header = check_crc(stamped)
    assert (header.timestamp_type, header.max_timestamp, header.compression) == (
        "LogAppendTime",
        NOW + 99,
        compression,
    )
    assert {record.timestamp for record in decode_batch(stamped)} == {NOW + 99}
    assert [record.value for record in decode_batch(stamped)] == [record.value for record in decode_batch(GOOD)]


def test_a_batch_takes_a_producer_and_its_sequence() -> None:
    batch = bytearray(GOOD)
    stamp_producer(batch, 7, 2, 41)
    header = check_crc(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 41, 43)
    assert decode_batch(batch) == decode_batch(GOOD)


def test_append_time_refuses_a_batch_that_is_cut_off() -> None:
    with pytest.raises(CorruptBatch):
        stamp_append_time(bytearray(GOOD[:-1]), 0, NOW)


@pytest.fixture
def entry() -> bytes:
    """Three batches back to back: offsets 10 to 12, 13, and after a gap 20 to 23."""
    return batch_of(3, 10) + batch_of(1, 13) + batch_of(4, 20)


def test_the_batches_of_an_entry_are_found_one_after_another(entry: bytes) -> None:
    found = list(iter_headers(memoryview(entry)))
    assert [header.base_offset for _, header in found] == [10, 13, 20]
    assert all(read_header(entry, pos) == header for pos, header in found)
    assert end_offset(entry) == 24
    assert list(iter_headers(b"")) == []


def test_an_offset_is_found_in_its_batch_or_in_the_next_one_after_a_gap(entry: bytes) -> None:
    first, second, third = (pos for pos, _ in iter_headers(entry))
    expected = {9: first, 10: first, 12: first, 13: second, 14: third, 20: third, 23: third, 24: len(entry)}
    assert {offset: slice_from(entry, offset) for offset in expected} == expected


def test_a_cut_takes_whole_batches_up_to_the_limit_and_maybe_none(entry: bytes) -> None:
    first, second, third = (pos for pos, _ in iter_headers(entry))
    assert fit(entry, first, len(entry)) == len(entry)
    assert fit(entry, first, len(entry) - 1) == third
    assert fit(entry, first, third - 1) == second
    assert fit(entry, first, second - 1) == first
    assert fit(entry, second, third - second) == third
    assert fit(entry, second, 0) == second
    assert fit(entry, len(entry), 0) == len(entry)


def test_an_entry_that_is_cut_off_at_any_byte_is_never_walked_as_if_it_were_whole(entry: bytes) -> None:
    boundaries = {pos for pos, _ in iter_headers(entry)}
    for size in set(range(len(entry))) - boundaries:
        with pytest.raises(CorruptBatch):
            list(iter_headers(entry[:size]))
        with pytest.raises(CorruptBatch):
            end_offset(entry[:size])
        with pytest.raises(CorruptBatch):
            slice_from(entry[:size], 99)
    with pytest.raises(CorruptBatch):
        end_offset(b"")


def test_a_transactional_batch_is_recognised_without_reading_its_header() -> None:
    header = read_header(encode_batch([Record(0, NOW)]))
    transactional = msgspec.structs.replace(header, attributes=header.attributes | TRANSACTIONAL)
    assert may_be_transactional(memoryview(pack_header(transactional)))
    assert not may_be_transactional(memoryview(pack_header(header)))
    assert not may_be_transactional(memoryview(pack_header(transactional))[:-1])
