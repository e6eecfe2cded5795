"""Compression of record batches, for each codec in a batch's attributes.

Rule kept here: a payload never yields more bytes than the caller allows, which is enforced while decompressing, since
a kilobyte of zstd can expand to a gigabyte. Separate from the batches because only this part needs libraries.

Why these libraries: cramjam carries snappy, lz4 and zstd in one wheel for every platform, needs no system library,
releases the GIL, and its `decompress_into` stops at the end of the given buffer (its `output_len` is a hint, not a
limit). It reads several gzip members or frames back to back in linear time, whereas a loop over zlib's `unused_data`
copies the rest for each. Gzip is written with zlib, which is faster.

A broker does this in threads beside its event loop, so nothing large may hold the GIL: clearing or copying a bytearray
of 128 MiB takes 100 ms. Large output therefore goes into anonymous memory, which the system clears page by page while
the codec writes, and is returned as a view.

Output is what the Java client can read: lz4 frames of independent blocks (KIP-57), snappy in xerial's framing with
blocks of 32 KiB. Raw snappy, as written by librdkafka, is also accepted.
"""

import mmap
import zlib
from collections.abc import Callable
from typing import Final, Literal

import cramjam

from headrace.wire.schema import Buffer

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

# A codec's id in a batch's attributes is its index here.
CODECS: Final[tuple[Compression, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")

# Java's defaults, so that a producer setting means the same here as elsewhere.
_ZSTD_LEVEL: Final = 3
_LZ4_LEVEL: Final = 9

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_PIECE_BYTES: Final = 1 << 20
"""Its compressor holds the GIL: half a millisecond for this much."""
_MAPPED_FROM_BYTES: Final = 1 << 20

# The most output per byte of input: deflate's longest match in two bits, lz4's run of length bytes, snappy's copy of
# 64 bytes in 3, a zstd block of 128 KiB in 4.
_MAX_RATIO: Final[dict[Compression, int]] = {"gzip": 1032, "snappy": 22, "lz4": 255, "zstd": 32768}

# A first guess that is large enough for most payloads; each next guess is this many times larger.
_GUESS_RATIO: Final = 8
_GUESS_MIN_BYTES: Final = 16 * 1024


class DecompressionFailed(ValueError):
    """The payload is malformed."""


class OutputTooLarge(ValueError):
    """The payload decompresses to more than the caller allows."""


def compress(data: Buffer, codec: Compression) -> bytes:
    """`data` as one compressed payload."""
    return _COMPRESS[codec](data)


def decompress(data: Buffer, codec: Compression, max_bytes: int) -> Buffer:
    """Decompresses `data` to at most `max_bytes`, or raises OutputTooLarge; DecompressionFailed if it is malformed.

    Without a codec it is `data` itself.
    """
    if codec == "none":
        if len(data) > max_bytes:
            raise _too_large(codec, max_bytes)
        return data
    if codec == "snappy":
        return _decompress_snappy(data, max_bytes)
    return _decompress_stream(data, codec, max_bytes)


def _too_large(codec: Compression, max_bytes: int) -> OutputTooLarge:
    return OutputTooLarge(f"The {codec} payload holds more than the {max_bytes} bytes allowed.")


def _room_for(size_bytes: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size_bytes) if size_bytes >= _MAPPED_FROM_BYTES else bytearray(size_bytes))


def _decompress_stream(data: Buffer, codec: Compression, max_bytes: int) -> Buffer:
    """Gzip, lz4 and zstd, whose output length is unknown.

    The library raises the same exception for too little room and for broken input, so both are retried with more room,
    up to the limit or to what the input could fill. Memory use stays below twice the limit.
    """
    limit = min(max_bytes, _MAX_RATIO[codec] * len(data))
    room = min(limit, _GUESS_RATIO * len(data) + _GUESS_MIN_BYTES)
    while True:
        out = _room_for(room)
        try:
            length = _DECOMPRESS_INTO[codec](data, out)
            return out[:length] if length >= _MAPPED_FROM_BYTES else bytes(out[:length])
        except cramjam.DecompressionError as error:
            if room == limit:
                if limit == max_bytes and "write whole buffer" in str(error):
                    raise _too_large(codec, max_bytes) from None
                raise DecompressionFailed(f"The {codec} payload is malformed: {error}.") from None
        room = min(limit, _GUESS_RATIO * room)


def _decompress_snappy(data: Buffer, max_bytes: int) -> Buffer:
    blocks = _snappy_blocks(memoryview(data))
    lengths = [_snappy_length(block) for block in blocks]
    if sum(lengths) > max_bytes:
        raise _too_large("snappy", max_bytes)
    out = _room_for(sum(lengths))
    pos = 0
    try:
        for block, length in zip(blocks, lengths, strict=True):
            cramjam.snappy.decompress_raw_into(block, out[pos : pos + length])
            pos += length
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(f"The snappy payload is malformed: {error}.") from None
    return out


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    """The blocks of xerial's framing; without framing, all of it is one block."""
    if not _has_xerial_magic(view, 0):
        return [view]
    blocks: list[memoryview] = []
    pos = 0
    while pos < len(view):
        # There may be several streams in a row, each with its own header.
        if _has_xerial_magic(view, pos):
            pos += len(_XERIAL_HEADER)
            continue
        start = pos + 4
        pos = start + int.from_bytes(view[pos:start], "big")
        if pos > len(view):
            raise DecompressionFailed("A snappy block runs past the end of the payload.")
        blocks.append(view[start:pos])
    if pos != len(view):
        raise DecompressionFailed("The snappy payload ends inside a header.")
    return blocks


def _has_xerial_magic(view: memoryview, pos: int) -> bool:
    return bytes(view[pos : pos + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _snappy_length(block: memoryview) -> int:
    """A block states its own length, which is trusted only if its bytes could fill it."""
    try:
        length: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(f"The snappy payload is malformed: {error}.") from None
    if length > _MAX_RATIO["snappy"] * len(block):
        raise DecompressionFailed(f"A snappy block of {len(block)} bytes claims to hold {length}.")
    return length


def _compress_gzip(data: Buffer) -> bytes:
    return zlib.compress(data, wbits=31)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer) -> bytes:
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PIECE_BYTES):
        compressor.compress(bytes(view[start : start + _LZ4_PIECE_BYTES]))  # takes nothing else
    return bytes(compressor.finish())


def _compress_zstd(data: Buffer) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


_COMPRESS: Final[dict[Compression, Callable[[Buffer], bytes]]] = {
    "none": bytes,
    "gzip": _compress_gzip,
    "snappy": _compress_snappy,
    "lz4": _compress_lz4,
    "zstd": _compress_zstd,
}

_DECOMPRESS_INTO: Final[dict[Compression, Callable[[Buffer, Buffer], int]]] = {
    "gzip": cramjam.gzip.decompress_into,
    "lz4": cramjam.lz4.decompress_into,
    "zstd": cramjam.zstd.decompress_into,
}
