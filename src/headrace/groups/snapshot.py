"""The durable form of a group, as JSON, and the way back.

Stored before an answer leaves, and all that a restart starts from. It keeps every protocol that a member
offered, not only the selected one: a member that joins again unchanged after a restart has to be
recognised, or the restart would cause the rebalance that it is meant to avoid.
"""

import msgspec

from headrace.groups.identity import Identity
from headrace.groups.state import Group, Member
from headrace.groups.table import State


class StoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    group_id: str
    identity: Identity | None
    state: State
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    empty_since_ms: int | None
    members: tuple[Member, ...]


class BadSnapshot(ValueError):
    """Stored bytes that are no group."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StoredGroup)


def dump(stored: StoredGroup) -> bytes:
    return _encoder.encode(stored)


def parse(raw: bytes) -> StoredGroup:
    try:
        return _decoder.decode(raw)
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
        state=State.EMPTY if initial else group.state,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=None if initial else group.leader,
        empty_since_ms=group.empty_since_ms,
        members=() if initial else tuple(group.members.values()),
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
    )
    for member in stored.members:
        group.members[member.member_id] = member
        if member.instance_id is not None:
            group.instances[member.instance_id] = member.member_id
        for protocol in member.protocols:
            group.support[protocol.name] = group.support.get(protocol.name, 0) + 1
    return group
