"""Variable-length integers as in record batches: seven bits per byte, least significant first.

Lengths, offset deltas and counts are zigzag varints (32 bits, at most 5 bytes), timestamp deltas zigzag
varlongs (64 bits, at most 10 bytes). Every decoder refuses a number that runs past the end of its input, takes
more bytes than its type allows, or does not fit the type, so hostile input cannot cause long loops.

Most numbers in a batch take one byte: encoders look those up in a table, decoders need one comparison.
"""

from typing import Final

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
_INT32_MIN: Final = -(1 << 31)
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


class MalformedVarint(ValueError):
    """The bytes are not a variable-length integer of this type."""


def encode_varint(value: int) -> bytes:
    """A signed integer of at most 32 bits, zigzag."""
    if -0x40 <= value < 0x40:
        return _ONE_BYTE[(value << 1) ^ (value >> 31)]
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise MalformedVarint(f"{value} does not fit a 32-bit varint.")
    return _encode((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """A signed integer of at most 64 bits, zigzag."""
    if -0x40 <= value < 0x40:
        return _ONE_BYTE[(value << 1) ^ (value >> 63)]
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise MalformedVarint(f"{value} does not fit a 64-bit varlong.")
    return _encode((value << 1) ^ (value >> 63))


def decode_varint(buf: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The zigzag 32-bit integer at `pos`, and the position after it."""
    try:
        if (low := buf[pos]) < 0x80:
            return (low >> 1) ^ -(low & 1), pos + 1
        if (high := buf[pos + 1]) < 0x80:
            return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), pos + 2
    except IndexError:
        raise _cut_off() from None
    value, pos = _decode(buf, pos, 32)
    return (value >> 1) ^ -(value & 1), pos


def decode_varlong(buf: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """The zigzag 64-bit integer at `pos`, and the position after it."""
    try:
        if (low := buf[pos]) < 0x80:
            return (low >> 1) ^ -(low & 1), pos + 1
        if (high := buf[pos + 1]) < 0x80:
            return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), pos + 2
    except IndexError:
        raise _cut_off() from None
    value, pos = _decode(buf, pos, 64)
    return (value >> 1) ^ -(value & 1), pos


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decode(buf: bytes | bytearray | memoryview, pos: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while (byte := buf[pos]) > 0x7F:
            value |= (byte & 0x7F) << shift
            pos += 1
            shift += 7
            if shift >= bits:
                raise MalformedVarint(f"A varint of {bits} bits does not end after {shift // 7} bytes.")
    except IndexError:
        raise _cut_off() from None
    value |= byte << shift
    if value >> bits:
        raise MalformedVarint(f"A varint does not fit {bits} bits.")
    return value, pos + 1


def _cut_off() -> MalformedVarint:
    return MalformedVarint("A varint runs past the end of its input.")
