"""Frames: a four-byte length, a header, a message. This module has the headers, and turns responses into buffers.

A request's header says which API and version follows, so it is decoded by hand before a codec is chosen. The response
to ApiVersions always has the old header, because the client does not know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

import struct

import msgspec

from headrace.wire import codec
from headrace.wire.apis import API_VERSIONS, SPOKEN
from headrace.wire.codec import DecodeError, Pieces
from headrace.wire.schema import Buffer, Message, Payload

_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_RESPONSE_HEAD = struct.Struct(">ii")
_JOIN_BELOW_BYTES = 16 * 1024
"""Of a whole response: one buffer."""
_SMALL_BYTES = 4 * 1024
_TAGS_MAX = 1_000
"""Tagged fields of a header. Kafka has none; each costs time before anybody knows who sent them."""


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """API, version and client of a request; `body` is the position where the message starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request's frame (without its length)."""
    try:
        api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
        pos = _HEADER.size
        client_id = None
        if size >= 0:
            if pos + size > len(frame):
                raise DecodeError("the client id goes beyond the request")
            client_id = str(frame[pos : pos + size], "utf-8", "replace")
            pos += size
        elif size < -1:
            raise DecodeError("the client id has a length below zero")
        api = SPOKEN.get(api_key)
        # The header of an unsupported version is unknown: only its fixed part is used.
        if api is not None and api.flexible_since <= version <= api.newest:
            pos = pos + 1 if frame[pos] == 0 else _skip_tags(frame, pos)
        return RequestHeader(api_key, version, correlation_id, client_id, pos)
    except (struct.error, IndexError):
        raise DecodeError("a request ends inside its header") from None


def _skip_tags(frame: Buffer, pos: int) -> int:
    count, pos = codec.read_unsigned_varint(frame, pos)
    if count > _TAGS_MAX:
        raise DecodeError(f"a header has {count} tagged fields, more than {_TAGS_MAX}")
    for _ in range(count):
        _, pos = codec.read_unsigned_varint(frame, pos)
        size, pos = codec.read_unsigned_varint(frame, pos)
        pos += size
        if pos > len(frame):
            raise DecodeError("a tagged field goes beyond the header")
    return pos


def request_frame(message: Payload, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request as bytes to send, including its length."""
    name = client_id.encode()
    flexible = version >= message.api.flexible_since
    head = _HEADER.pack(message.api.key, version, correlation_id, len(name)) + name + (b"\0" if flexible else b"")
    body = codec.encode_bytes(message, version)
    return _LENGTH.pack(len(head) + len(body)) + head + body


def response_frame(api_key: int, message: Message, version: int, correlation_id: int) -> Pieces:
    """A response as buffers to send: small pieces are joined, large ones sent as they are."""
    pieces: Pieces = [b""]
    if api_key != API_VERSIONS and version >= SPOKEN[api_key].flexible_since:
        pieces.append(b"\0")
    codec.encoder(type(message), version)(message, pieces)
    size = sum(map(len, pieces))
    pieces[0] = _RESPONSE_HEAD.pack(4 + size, correlation_id)
    return [b"".join(pieces)] if size < _JOIN_BELOW_BYTES else join_small(pieces)


def response_body(api_key: int, version: int, frame: Buffer) -> int:
    """The start of the message in a response's frame (without the length, after the correlation id)."""
    if api_key == API_VERSIONS or version < SPOKEN[api_key].flexible_since:
        return _CORRELATION_ID.size
    try:
        return _skip_tags(frame, _CORRELATION_ID.size)
    except IndexError:
        raise DecodeError("a response ends inside its header") from None


def response_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response's frame."""
    try:
        found: int = _CORRELATION_ID.unpack_from(frame)[0]
    except struct.error:
        raise DecodeError("a response ends inside its header") from None
    return found


def join_small(pieces: Pieces) -> Pieces:
    """Joins runs of small buffers: each costs a little, and above a page that is less than its copy."""
    if sum(map(len, pieces)) < _JOIN_BELOW_BYTES:
        return [b"".join(pieces)]
    joined: Pieces = []
    small: Pieces = []
    for piece in pieces:
        if len(piece) < _SMALL_BYTES:
            small.append(piece)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(piece)
    if small:
        joined.append(b"".join(small))
    return joined
