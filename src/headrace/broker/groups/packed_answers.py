"""The responses to Heartbeat, SyncGroup and JoinGroup, as most members get them, packed by hand.

A rebalance answers all members of a group at once, and what they are told differs in an id or an assignment alone. So
the part that is the same is encoded once, by the codec, and kept. A test compares the result with the codec in every
version. The response that lists the members goes to one of them and through the codec.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from headrace.wire import codec
from headrace.wire.apis import HEARTBEAT, JOIN_GROUP, SPOKEN, SYNC_GROUP
from headrace.wire.compiler.primitives import unsigned_varint
from headrace.wire.messages.heartbeat import HeartbeatResponse
from headrace.wire.messages.join_group import JoinGroupResponse
from headrace.wire.messages.sync_group import SyncGroupResponse
from headrace.wire.schema import Payload

_HEAD = struct.Struct(">ii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_KEPT: Final = 64
_KEPT_CHARS: Final = 1_000
"""Of the names in what is kept: clients choose them."""
_JOIN_FLEXIBLE_SINCE = SPOKEN[JOIN_GROUP].flexible_since
_SYNC_FLEXIBLE_SINCE = SPOKEN[SYNC_GROUP].flexible_since
_NO_MEMBERS = b"\0\0\0\0"
_NO_MEMBERS_FLEXIBLE = b"\x01\0"
"""An empty list, no tags."""
_NO_TAGS = b"\0"


def heartbeat_answer(version: int, correlation_id: int, error: int) -> bytes:
    """The whole frame."""
    body = _heartbeat(version, error)
    return _HEAD.pack(4 + len(body), correlation_id) + body


@lru_cache(_KEPT)
def _heartbeat(version: int, error: int) -> bytes:
    return _body(HEARTBEAT, HeartbeatResponse(error_code=error), version)


def sync_answer(
    version: int, correlation_id: int, error: int, protocol_type: str | None, protocol_name: str | None, given: bytes
) -> bytes:
    """The whole frame; what is given is the assignment."""
    is_short = len(protocol_type or "") + len(protocol_name or "") <= _KEPT_CHARS
    head_of = _sync_head if is_short else _sync_head.__wrapped__
    head = head_of(version, error, protocol_type, protocol_name)
    if version >= _SYNC_FLEXIBLE_SINCE:
        size, end = unsigned_varint(1 + len(given)), _NO_TAGS
    else:
        size, end = _INT32.pack(len(given)), b""
    length = 4 + len(head) + len(size) + len(given) + len(end)
    return b"".join((_HEAD.pack(length, correlation_id), head, size, given, end))


@lru_cache(_KEPT)
def _sync_head(version: int, error: int, protocol_type: str | None, protocol_name: str | None) -> bytes:
    """All that comes before the assignment."""
    response = SyncGroupResponse(error_code=error, protocol_type=protocol_type, protocol_name=protocol_name)
    return _body(SYNC_GROUP, response, version)[: -2 if version >= _SYNC_FLEXIBLE_SINCE else -4]


def join_answer(
    version: int,
    correlation_id: int,
    error: int,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    skip_assignment: bool,
    member_id: str,
) -> bytes:
    """The whole frame for a member that is not told who the others are."""
    is_short = len(protocol_type or "") + len(protocol_name or "") + len(leader) <= _KEPT_CHARS
    head_of = _join_head if is_short else _join_head.__wrapped__
    head = head_of(version, error, generation, protocol_type, protocol_name, leader, skip_assignment)
    text = member_id.encode()
    if version >= _JOIN_FLEXIBLE_SINCE:
        size, end = unsigned_varint(1 + len(text)), _NO_MEMBERS_FLEXIBLE
    else:
        size, end = _INT16.pack(len(text)), _NO_MEMBERS
    length = 4 + len(head) + len(size) + len(text) + len(end)
    return b"".join((_HEAD.pack(length, correlation_id), head, size, text, end))


@lru_cache(_KEPT)
def _join_head(
    version: int,
    error: int,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    skip_assignment: bool,
) -> bytes:
    """All that comes before the member's id."""
    response = JoinGroupResponse(0, error, generation, protocol_type, protocol_name, leader, skip_assignment)
    return _body(JOIN_GROUP, response, version)[: -3 if version >= _JOIN_FLEXIBLE_SINCE else -6]


def _body(api_key: int, response: Payload, version: int) -> bytes:
    """What follows the correlation id."""
    tags = _NO_TAGS if version >= SPOKEN[api_key].flexible_since else b""
    return tags + codec.encode_bytes(response, version)
