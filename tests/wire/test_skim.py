"""Going over records: it sees what decoding sees, and no portion of it is long, whatever the batch holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.batch import HEADER_BYTES, check_produced, read_header, unpacked_limit
from headrace.wire.batch_errors import BatchError, BatchTooLarge
from headrace.wire.compression import CODECS, Compression, compress
from headrace.wire.records import Record, decode_batch, encode_batch, iter_records
from headrace.wire.skim import find_time, finish, skim
from headrace.wire.varint import encode_varint
from tests.wire.skimmed import keyless, skimmed
from tests.wire.test_records import NOW, consecutive, raw_batch, raw_record

MIB = 1 << 20


@given(consecutive(), st.sampled_from(CODECS))
@settings(deadline=None)
def test_it_tells_what_decoding_tells(records: list[Record], codec: Compression) -> None:
    batch = encode_batch(records, base_offset=records[0].offset, compression=codec)
    assert skimmed(batch) == [(r.offset - records[0].offset, r.timestamp, r.key is not None) for r in records]


@given(st.binary(max_size=60), st.integers(0, 5))
def test_it_refuses_what_decoding_refuses(payload: bytes, count: int) -> None:
    batch = raw_batch(payload, count)
    try:
        records = decode_batch(batch)
    except BatchError as refusal:
        with pytest.raises(type(refusal)):
            skimmed(batch)
    else:
        assert [timestamp for _, timestamp, _ in skimmed(batch)] == [record.timestamp for record in records]


def test_a_time_is_found_with_its_offset() -> None:
    records = [Record(70 + n, NOW + n % 3, None, b"v") for n in range(10)]
    batch = encode_batch(records, base_offset=70)
    data, header = batch[HEADER_BYTES:], read_header(batch)
    assert finish(find_time(data, header, NOW + 1, 0)) == (71, NOW + 1)
    assert finish(find_time(data, header, NOW + 1, 73)) == (74, NOW + 1)
    assert finish(find_time(data, header, NOW + 3, 0)) is None


def test_the_first_of_many_without_a_key_are_named_and_all_are_counted() -> None:
    batch = encode_batch([Record(n, NOW, None if n % 2 else b"") for n in range(5_000)], compression="zstd")
    assert keyless(batch, most=3) == (2_500, [1, 3, 5])


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(b"".join(raw_record(offset_delta=n) for n in range(20_000)), 20_000, id="many records"),
        pytest.param(raw_record(rest=b"\x01\x01" + encode_varint(20_000) + b"\0\1" * 20_000), 1, id="many headers"),
    ],
)
def test_no_portion_is_long(payload: bytes, count: int) -> None:
    header = read_header(raw_batch(payload, count))
    assert sum(1 for _ in skim(payload, header)) >= 20
    portions = list(iter_records(payload, header))
    assert max(len(portion) for portion in portions) <= 500
    assert sum(len(portion) for portion in portions) == count


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_the_best_ratio_that_a_default_batch_of_a_producer_reaches_is_taken(codec: Compression) -> None:
    """16 KiB that hold the same record again and again."""
    size_bytes = len(compress(bytes(16 * MIB), codec)) + HEADER_BYTES
    assert unpacked_limit(size_bytes, 1_048_588) >= 16 * MIB
    assert unpacked_limit(1 * MIB, 1_048_588) >= 100 * MIB


def test_what_a_batch_may_hold_follows_what_its_topic_takes() -> None:
    assert unpacked_limit(4_000, 1_000) == 400_000
    assert unpacked_limit(200, 1_000) == 20_000
    assert unpacked_limit(100, 1_000) == 16_000
    assert unpacked_limit(4_000, 64 * MIB) == 128 * MIB
    assert unpacked_limit(4_000, 512 * MIB) == 512 * MIB


def test_a_count_that_cannot_fit_what_the_batch_may_hold_is_refused_by_its_header() -> None:
    batch = raw_batch(compress(bytes(1_000), "zstd"), 3_000_000, codec="zstd")
    with pytest.raises(BatchTooLarge):
        check_produced(batch, 1_048_588)
    assert check_produced(raw_batch(compress(bytes(1_000), "zstd"), 2_000_000, codec="zstd"), 1_048_588)
