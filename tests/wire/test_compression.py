"""Codecs: what goes in comes out, whatever framing a client chose, and never more than allowed."""

import contextlib
import gzip
import importlib
import tracemalloc
from typing import Any

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.compression import (
    CODECS,
    Compression,
    DecompressionFailed,
    OutputTooLarge,
    compress,
    decompress,
)

# It has no types, hence not a plain import.
lz4_frame: Any = importlib.import_module("lz4.frame")

PACKED: tuple[Compression, ...] = CODECS[1:]
MIB = 1024 * 1024


@given(st.binary(max_size=5000), st.sampled_from(CODECS))
@settings(deadline=None)
def test_what_is_compressed_comes_back(data: bytes, codec: Compression) -> None:
    packed = compress(data, codec)
    assert decompress(packed, codec, len(data)) == data
    assert decompress(memoryview(packed), codec, 1 << 20) == data


@pytest.mark.parametrize("codec", PACKED)
def test_highly_compressible_data_comes_back_although_the_first_guess_of_its_size_is_too_small(
    codec: Compression,
) -> None:
    data = bytes(3 * MIB) + b"end"
    assert decompress(compress(data, codec), codec, 16 * MIB) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_exact(codec: Compression) -> None:
    data = bytes(range(256)) * 300
    packed = compress(data, codec)
    assert decompress(packed, codec, len(data)) == data
    with pytest.raises(OutputTooLarge):
        decompress(packed, codec, len(data) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_members_frames_and_streams_may_follow_one_another(codec: Compression) -> None:
    packed = compress(b"one " * 50, codec) + compress(b"two " * 50, codec)
    assert decompress(packed, codec, 400) == b"one " * 50 + b"two " * 50
    with pytest.raises(OutputTooLarge):
        decompress(packed, codec, 399)


@pytest.mark.parametrize("codec", PACKED)
def test_truncation_at_every_byte_is_refused(codec: Compression) -> None:
    # Snappy's framing has no end mark: only a cut between blocks, never inside one, goes unseen.
    packed = compress(b"some payload " * 20, codec)
    whole = {16} if codec == "snappy" else set()
    for length in range(len(packed)):
        if length in whole:
            continue
        with pytest.raises(DecompressionFailed):
            decompress(packed[:length], codec, 1 << 20)


@pytest.mark.parametrize("codec", PACKED)
@given(garbage=st.binary(max_size=200))
@settings(deadline=None)
def test_garbage_is_refused_or_decoded_but_nothing_else_happens(codec: Compression, garbage: bytes) -> None:
    for data in (garbage, compress(b"payload", codec) + garbage, compress(b"payload", codec)[:12] + garbage):
        with contextlib.suppress(DecompressionFailed, OutputTooLarge):
            assert len(decompress(data, codec, 4096)) <= 4096


def _gigabyte(codec: Compression) -> bytes:
    """1 GiB of zeros, as members, frames or blocks of 16 MiB."""
    if codec != "snappy":
        return compress(bytes(16 * MIB), codec) * 64
    block = bytes(cramjam.snappy.compress_raw(bytes(16 * MIB)))
    return compress(b"", "snappy") + (len(block).to_bytes(4, "big") + block) * 64


@pytest.mark.parametrize("codec", PACKED)
def test_a_gigabyte_of_zeros_is_stopped_at_the_bound(codec: Compression) -> None:
    packed = _gigabyte(codec)
    tracemalloc.start()
    try:
        with pytest.raises(OutputTooLarge):
            decompress(packed, codec, 2 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5 * MIB


def test_a_raw_snappy_block_that_claims_more_than_it_could_fill_allocates_nothing() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    with pytest.raises(DecompressionFailed, match="claims to hold"):
        decompress(claims_4_gib, "snappy", 1 << 33)


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    data = b"some payload " * 10_000
    assert decompress(bytes(cramjam.snappy.compress_raw(data)), "snappy", len(data)) == data


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    packed = compress(bytes(70_000), "snappy")
    assert packed[:16] == b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    lengths, pos = [], 16
    while pos < len(packed):
        size = int.from_bytes(packed[pos : pos + 4], "big")
        lengths.append(cramjam.snappy.decompress_raw_len(packed[pos + 4 : pos + 4 + size]))
        pos += 4 + size
    assert lengths == [32_768, 32_768, 70_000 - 2 * 32_768]


def test_lz4_is_written_as_a_frame_of_independent_blocks_which_java_insists_on() -> None:
    info = lz4_frame.get_frame_info(compress(bytes(200_000), "lz4"))
    assert info["block_linked"] is False


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_every_kind_of_lz4_frame_is_read(linked: bool, checksums: bool) -> None:
    data = b"some payload " * 20_000
    frame = lz4_frame.compress(
        data, block_linked=linked, content_checksum=checksums, block_checksum=checksums, store_size=checksums
    )
    assert decompress(frame, "lz4", len(data)) == data


def test_gzip_and_zstd_of_other_writers_are_read() -> None:
    data = b"some payload " * 1000
    assert decompress(gzip.compress(data), "gzip", len(data)) == data
    assert decompress(zstandard.compress(data, 19), "zstd", len(data)) == data
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(packer.compress(data) + packer.flush(), "zstd", len(data)) == data
