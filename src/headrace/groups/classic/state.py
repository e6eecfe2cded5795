"""What a group is made of.

`Member` and the first half of `Group` are durable: `snapshot` stores them. The second half lives only as
long as the process: who waits for an answer, which ids were handed out, what is counted for speed.
A `Group` is never changed once it was decided: a handler works on a `fork`, which the broker adopts after
storing it, or drops when storing failed. Members are frozen and shared, so a fork costs a few dict copies; a handler
that changes one of the dicts shares the others, too.
"""

from collections.abc import Hashable

import msgspec

from headrace.groups.classic.table import ClassicState
from headrace.groups.identity import GroupIdentity

CONSUMER_PROTOCOL_TYPE = "consumer"


class Protocol(msgspec.Struct, frozen=True, gc=False):
    """A way to assign partitions that a member supports; the metadata is the clients' own matter."""

    name: str
    metadata: bytes


class Member(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes | None:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return None


class Parked(msgspec.Struct, frozen=True):
    """A request whose answer is held back."""

    token: Hashable
    version: int


class InitialDelay(msgspec.Struct, frozen=True):
    """The first rebalance of an Empty group: it waits for more members, and for each that comes a delay longer."""

    ends_by_ms: int
    """However many come: the rebalance timeout of the first one."""


class Group(msgspec.Struct, kw_only=True):
    group_id: str
    identity: GroupIdentity | None = None
    """Minted when the first member is let in; a simple group, made by a commit alone, has none."""
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    empty_since_ms: int | None = None
    members: dict[str, Member] = msgspec.field(default_factory=dict)
    """By member id, oldest first: the order in which leaders are replaced."""

    are_assigned: bool = True
    """Whether assignments are of this generation. Those of the one before stay with their members until the leader's
    come: of those that stay the same nothing has to be stored."""

    is_stored: bool = False
    pending: set[str] = msgspec.field(default_factory=set)
    """Handed-out member ids that nobody joined with yet."""
    joins: dict[str, Parked] = msgspec.field(default_factory=dict)
    syncs: dict[str, Parked] = msgspec.field(default_factory=dict)
    unsynced: set[str] = msgspec.field(default_factory=set)
    """Members of this generation that did not send their Sync yet."""
    instances: dict[str, str] = msgspec.field(default_factory=dict)
    """Static members: instance id to member id."""
    support: dict[str, int] = msgspec.field(default_factory=dict)
    """Protocol name to the number of members that support it."""
    initial: InitialDelay | None = None

    def fork(self) -> "Group":
        return msgspec.structs.replace(
            self,
            members=self.members.copy(),
            pending=self.pending.copy(),
            joins=self.joins.copy(),
            syncs=self.syncs.copy(),
            unsynced=self.unsynced.copy(),
            instances=self.instances.copy(),
            support=self.support.copy(),
        )

    def assignment(self, member: Member) -> bytes:
        """An assignment belongs to the generation that it was made for."""
        return member.assignment if self.are_assigned else b""

    def is_nothing(self) -> bool:
        """Whether it only ever handed ids out, and nobody can come with one any more."""
        return not self.is_stored and self.state is ClassicState.EMPTY and not self.pending

    def is_parked(self, member_id: str) -> bool:
        return member_id in self.joins or member_id in self.syncs

    def all_joined(self) -> bool:
        return len(self.joins) == len(self.members) and not self.pending

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
