"""Codecs, compiled from the schema: one function per message, version and direction, built at its first use.

The function is straight-line code for exactly that version: adjacent fixed-size fields are read or written with one
struct call, nested structures are inlined as loops. Record batches are never copied: a decoder returns views of the
frame, an encoder puts the caller's buffers between its own pieces.

Decoding is bounded: no length or count makes it allocate more than the input could fill, and all arrays and tagged
fields of a message share a budget of elements. Unknown tagged fields are skipped. Any bad input raises DecodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from headrace.wire.compiler.decoder import DecoderSource
from headrace.wire.compiler.encoder import EncoderSource
from headrace.wire.compiler.primitives import DecodeError, read_unsigned_varint, unsigned_varint
from headrace.wire.schema import Buffer, Message, Payload

__all__ = [
    "ELEMENTS_MAX",
    "MALFORMED",
    "DecodeError",
    "Pieces",
    "decode",
    "decoder",
    "encode",
    "encode_bytes",
    "encoder",
    "has_version",
    "is_flexible",
    "read_unsigned_varint",
    "unsigned_varint",
]

ELEMENTS_MAX = 100_000
"""Array elements and tagged fields in one request, nested ones included: above real use, but it bounds the cost of a
hostile frame."""

MALFORMED: Final = (DecodeError, struct.error, IndexError, UnicodeDecodeError)
"""What a decoder raises for bad input; `decode` makes one error of them."""

Pieces: TypeAlias = list[Buffer]
Decoder: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, Pieces], None]
M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0, elements_max: int = ELEMENTS_MAX) -> tuple[M, int]:
    """Decodes the message at `pos`; returns it and the position after it."""
    try:
        return decoder(cls, version)(buf, pos, elements_max)
    except DecodeError:
        raise
    except (struct.error, IndexError):
        raise DecodeError(f"{cls.__name__} v{version} ends too early") from None
    except UnicodeDecodeError:
        raise DecodeError(f"{cls.__name__} v{version} has a string that is not UTF-8") from None


def encode(message: Message, version: int) -> Pieces:
    """The message as buffers to send in order."""
    pieces: Pieces = []
    encoder(type(message), version)(message, pieces)
    return pieces


def encode_bytes(message: Message, version: int) -> bytes:
    """The message as one bytes object."""
    return b"".join(encode(message, version))


def is_flexible(cls: type[Message], version: int) -> bool:
    """Whether this version of a request or response uses compact lengths and tagged fields."""
    return issubclass(cls, Payload) and version >= cls.api.flexible_since


@cache
def decoder(cls: type[Message], version: int) -> Decoder:
    """The compiled decoder of one version: (buffer, position, element budget) -> (message, position after it)."""
    if not has_version(cls, version):
        # The version may come from a client: unknown ones are neither compiled nor cached.
        raise DecodeError(f"{cls.__name__} has no version {version}")
    built: Decoder = DecoderSource(version, is_flexible(cls, version)).build(cls)
    return built


@cache
def encoder(cls: type[Message], version: int) -> Encoder:
    """The compiled encoder of one version: (message, pieces to append to)."""
    if not has_version(cls, version):
        raise ValueError(f"{cls.__name__} has no version {version}")
    built: Encoder = EncoderSource(version, is_flexible(cls, version)).build(cls)
    return built


def has_version(cls: type[Message], version: int) -> bool:
    """Whether Kafka has this version of a request or response; nested structures have all versions."""
    return not issubclass(cls, Payload) or cls.api.versions[0] <= version <= cls.api.versions[1]
