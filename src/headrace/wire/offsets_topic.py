"""Records of the topic `__consumer_offsets`, as Kafka writes them: a group's commits and its members.

Kafka's schemas OffsetCommitKey 1, OffsetCommitValue 3, GroupMetadataKey 2 and GroupMetadataValue 3: the newest that the
tools which read this topic all know. None of these versions is flexible.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

OFFSETS_TOPIC: Final = "__consumer_offsets"

_OFFSET_KEY: Final = 1
_OFFSET_VALUE: Final = 3
_GROUP_KEY: Final = 2
_GROUP_VALUE: Final = 3

_MEMBER_BYTES: Final = 26
"""Of a member's lengths and timeouts."""

_version = struct.Struct(">h").pack
_int32 = struct.Struct(">i").pack
_int64 = struct.Struct(">q").pack


class ShownMember(NamedTuple):
    """A member as GroupMetadataValue describes it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class ShownGroup(NamedTuple):
    """A group as GroupMetadataValue describes it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    members: tuple[ShownMember, ...]

    @property
    def size_bytes(self) -> int:
        """About how large its record is, without making it."""
        return sum(
            len(member.subscription)
            + len(member.assignment)
            + len(member.member_id)
            + len(member.client_id)
            + len(member.client_host)
            + _MEMBER_BYTES
            for member in self.members
        )


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a commit."""
    return b"".join((_version(_OFFSET_KEY), _string(group_id), _string(topic), _int32(partition)))


def offset_value(offset: int, leader_epoch: int, metadata: str, commit_ms: int) -> bytes:
    """A commit."""
    return b"".join(
        (_version(_OFFSET_VALUE), _int64(offset), _int32(leader_epoch), _string(metadata), _int64(commit_ms))
    )


def group_key(group_id: str) -> bytes:
    """The key of a group's members."""
    return _version(_GROUP_KEY) + _string(group_id)


def group_value(group: ShownGroup) -> bytes:
    """A group's members and what they were assigned."""
    head = (
        _version(_GROUP_VALUE),
        _string(group.protocol_type),
        _int32(group.generation),
        _string(group.protocol),
        _string(group.leader),
        _int64(group.since_ms),
        _int32(len(group.members)),
    )
    return b"".join((*head, *_members(group.members)))


def _members(members: Iterable[ShownMember]) -> Iterable[bytes]:
    for member in members:
        yield _string(member.member_id)
        yield _string(member.instance_id)
        yield _string(member.client_id)
        yield _string(member.client_host)
        yield _int32(member.rebalance_timeout_ms)
        yield _int32(member.session_timeout_ms)
        yield _int32(len(member.subscription)) + member.subscription
        yield _int32(len(member.assignment)) + member.assignment


def _string(text: str | None) -> bytes:
    if text is None:
        return _version(-1)
    data = text.encode()
    return _version(len(data)) + data
