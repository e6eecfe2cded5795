"""The durable form of a group as JSON fields, and back.

It is stored before a response is sent, and a restart starts from nothing else. It keeps every protocol that a member
offered, not only the selected one: a member that rejoins unchanged after a restart has to be recognised, or the restart
would cause the very rebalance it should avoid.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.groups.classic.state import Group, Member
from headrace.groups.classic.table import ClassicState
from headrace.groups.identity import GroupIdentity


class StoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    group_id: str
    identity: GroupIdentity | None
    state: ClassicState
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    empty_since_ms: int | None
    members: tuple[Member, ...]
    are_assigned: bool = True


class BadSnapshot(ValueError):
    """Stored bytes that are no group."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A group without its members, which are fields of their own: most changes are of one of them."""

    format: int = 2
    identity: GroupIdentity | None
    state: ClassicState
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    empty_since_ms: int | None
    members: tuple[str, ...]
    """Their ids, oldest first."""
    are_assigned: bool = True


HEAD = "head"
_WHOLE = "state"
"""Where a release before kept all of a group; read, and replaced at the next change."""
_MEMBER = "member:"

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    HEAD: msgspec.json.Decoder(Head),
    _WHOLE: msgspec.json.Decoder(StoredGroup),
}
_member_decoder = msgspec.json.Decoder(Member)


def fields(stored: StoredGroup) -> dict[str, Head | Member]:
    """A group as it is stored: a head, and a field for each member."""
    head = Head(
        identity=stored.identity,
        state=stored.state,
        generation=stored.generation,
        protocol_type=stored.protocol_type,
        protocol_name=stored.protocol_name,
        leader=stored.leader,
        empty_since_ms=stored.empty_since_ms,
        members=tuple([member.member_id for member in stored.members]),
        are_assigned=stored.are_assigned,
    )
    return {HEAD: head} | {_MEMBER + member.member_id: member for member in stored.members}


def from_fields(group_id: str, found: Mapping[str, Any]) -> StoredGroup:
    """The way back; BadSnapshot if the fields are no group."""
    if HEAD not in found and _WHOLE in found:
        whole: StoredGroup = found[_WHOLE]
        return whole
    try:
        head: Head = found[HEAD]
        members = tuple(found[_MEMBER + member_id] for member_id in head.members)
    except KeyError as error:
        raise BadSnapshot(f"field {error} is missing") from None
    return StoredGroup(
        group_id=group_id,
        identity=head.identity,
        state=head.state,
        generation=head.generation,
        protocol_type=head.protocol_type,
        protocol_name=head.protocol_name,
        leader=head.leader,
        empty_since_ms=head.empty_since_ms,
        members=members,
        are_assigned=head.are_assigned,
    )


def pack(value: Head | Member | StoredGroup | bytes) -> bytes:
    return value if isinstance(value, bytes) else _encoder.encode(value)


def unpack(field: str, raw: bytes) -> Any:
    """The value of a field; BadSnapshot if it is none. What a later release stored beside stays as it is."""
    decoder = _member_decoder if field.startswith(_MEMBER) else _decoders.get(field)
    if decoder is None:
        return raw
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadSnapshot(str(error)) from error


def take(group: Group) -> StoredGroup:
    """The durable part of a group.

    Before its first generation nobody was promised anything: a group in its initial rebalance is stored
    as the Empty one that it was, and after a restart its members start over.
    """
    initial = group.initial is not None
    return StoredGroup(
        group_id=group.group_id,
        identity=group.identity,
        state=ClassicState.EMPTY if initial else group.state,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=None if initial else group.leader,
        empty_since_ms=group.empty_since_ms,
        members=() if initial else tuple(group.members.values()),
        are_assigned=group.are_assigned,
    )


def restore(stored: StoredGroup) -> Group:
    """The group as it was stored; nobody is parked, no id is pending."""
    group = Group(
        group_id=stored.group_id,
        identity=stored.identity,
        state=stored.state,
        generation=stored.generation,
        protocol_type=stored.protocol_type,
        protocol_name=stored.protocol_name,
        leader=stored.leader,
        empty_since_ms=stored.empty_since_ms,
        are_assigned=stored.are_assigned,
        is_stored=True,
    )
    for member in stored.members:
        group.members[member.member_id] = member
        if member.instance_id is not None:
            group.instances[member.instance_id] = member.member_id
        for protocol in member.protocols:
            group.support[protocol.name] = group.support.get(protocol.name, 0) + 1
    return group
