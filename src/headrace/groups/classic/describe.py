"""Read-only views of a group for DescribeGroups and ListGroups."""

from collections.abc import Collection

import msgspec

from headrace.groups.classic.state import Group
from headrace.groups.classic.table import ClassicState
from headrace.wire.errors import ErrorCode

NOT_FOUND_FROM = 6
CLASSIC_TYPE = "classic"


class DescribedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """Metadata of the selected protocol; empty unless the group is Stable."""
    assignment: bytes


class DescribedGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ClassicState.DEAD.value
    protocol_type: str = ""
    protocol_name: str = ""
    """The selected protocol; empty unless the group is Stable."""
    members: tuple[DescribedMember, ...] = ()
    id: str | None = None
    locator: str | None = None
    generation: int = 0
    leader: str | None = None
    empty_since_ms: int | None = None


class ListedGroup(msgspec.Struct, frozen=True):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC_TYPE


def describe(group: Group | None, group_id: str, version: int) -> DescribedGroup:
    """A group that does not exist is Dead, and from version 6 also an error (KIP-1043)."""
    if group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_FROM else ErrorCode.NONE
        return DescribedGroup(group_id=group_id, error=error)
    protocol_name = group.protocol_name if group.state is ClassicState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=_described_members(group, protocol_name),
        id=group.identity.id if group.identity else None,
        locator=group.identity.locator if group.identity else None,
        generation=group.generation,
        leader=group.leader,
        empty_since_ms=group.empty_since_ms,
    )


def _described_members(group: Group, protocol_name: str | None) -> tuple[DescribedMember, ...]:
    return tuple(
        DescribedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata(protocol_name) or b"",
            assignment=group.assignment(member),
        )
        for member in group.members.values()
    )


def listed(group: Group) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value)


def is_listed(group: Group, states: Collection[str], types: Collection[str]) -> bool:
    """The filters of ListGroups: case does not matter, an empty filter lets everything through."""
    return _matches(group.state.value, states) and _matches(CLASSIC_TYPE, types)


def _matches(value: str, wanted: Collection[str]) -> bool:
    return not wanted or value.lower() in {name.strip().lower() for name in wanted}
