"""The few wire primitives that are read by hand, and the error of all decoding."""

from __future__ import annotations

from headrace.wire.schema import Buffer


class DecodeError(ValueError):
    """The bytes are not a message of this kind and version."""


def read_unsigned_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, and the position after it."""
    value = buf[pos]
    pos += 1
    if value < 0x80:
        return value, pos
    byte = buf[pos]
    pos += 1
    value = value & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, pos  # up to 16 KB: the length of a producer's usual batch
    shift = 14
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
        if shift > 28:
            raise DecodeError("a varint is longer than five bytes")


def unsigned_varint(value: int) -> bytes:
    """An unsigned varint as bytes."""
    if value < 0x80:
        return SMALL_VARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_VARINTS = [bytes([n]) for n in range(128)]
