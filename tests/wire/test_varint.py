"""Varints: what other implementations write, every value of the type, and nothing else."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.util import decode_varint as kafka_python_decode
from kafka.record.util import encode_varint as kafka_python_encode

from headrace.wire.varint import (
    MalformedVarint,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)

Decoder = Callable[[bytes, int], tuple[int, int]]

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (63, b"\x7e"),
        (-64, b"\x7f"),
        (64, b"\x80\x01"),
        (-65, b"\x81\x01"),
        (8191, b"\xfe\x7f"),
        (8192, b"\x80\x80\x01"),
        ((1 << 31) - 1, b"\xfe\xff\xff\xff\x0f"),
        (-(1 << 31), b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints_have_the_bytes_that_the_format_gives_them(value: int, encoded: bytes) -> None:
    assert encode_varint(value) == encode_varlong(value) == encoded
    assert decode_varint(encoded, 0) == decode_varlong(encoded, 0) == (value, len(encoded))


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
@settings(deadline=None)
def test_varint_comes_back_from_the_middle_of_a_buffer(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    end = len(before) + len(encoded)
    assert decode_varint(before + encoded + after, len(before)) == (value, end)
    assert decode_varint(memoryview(before + encoded + after), len(before)) == (value, end)


@given(INT64)
@settings(deadline=None)
def test_varlong_comes_back_and_agrees_with_kafka_python(value: int) -> None:
    theirs = bytearray()
    kafka_python_encode(value, theirs.append)
    encoded = encode_varlong(value)
    assert encoded == bytes(theirs)
    assert decode_varlong(encoded, 0) == (value, len(encoded)) == kafka_python_decode(bytearray(encoded), 0)


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_what_does_not_fit_32_bits_is_not_encoded(value: int) -> None:
    with pytest.raises(MalformedVarint):
        encode_varint(value)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_what_does_not_fit_64_bits_is_not_encoded(value: int) -> None:
    with pytest.raises(MalformedVarint):
        encode_varlong(value)


@pytest.mark.parametrize(("decode", "max_bytes"), [(decode_varint, 5), (decode_varlong, 10)])
def test_a_number_that_is_cut_off_too_long_or_too_large_is_refused(decode: Decoder, max_bytes: int) -> None:
    for length in range(max_bytes):
        with pytest.raises(MalformedVarint):
            decode(b"\x80" * length, 0)
    with pytest.raises(MalformedVarint):
        decode(b"\x80" * max_bytes + b"\x00", 0)
    with pytest.raises(MalformedVarint):
        decode(b"\xff" * (max_bytes - 1) + b"\x7f", 0)
    assert decode(b"\x80" * (max_bytes - 1) + b"\x00", 0) == (0, max_bytes)
