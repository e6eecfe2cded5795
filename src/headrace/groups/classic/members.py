"""Membership: finding, adding, changing, replacing and removing members, and the effects on the leader, static
instances and supported protocols.

Every change of membership goes through here, so that the counts next to `members` are always right.
"""

from collections.abc import Sequence

from headrace.groups.classic.answers import JoinAnswer, SyncAnswer
from headrace.groups.classic.events import Join
from headrace.groups.classic.scene import Turn
from headrace.groups.classic.state import Group, Member, Parked, Protocol
from headrace.groups.classic.timers import JOIN_TIMER, pending_timer, session_timer
from headrace.wire.errors import ErrorCode

_SUPERSEDED = ErrorCode.REBALANCE_IN_PROGRESS
"""For a parked request whose member sent it again, most likely over a new connection."""


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Kafka's order: unknown instance, instance held by another member, unknown member."""
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def supports(group: Group, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
    """May a member with these protocols join? It needs the group's type and one protocol of everybody."""
    if not group.members:
        return bool(protocol_type and protocols)
    size = len(group.members)
    return group.protocol_type == protocol_type and size in [group.support.get(p.name) for p in protocols]


def vote(group: Group) -> str:
    """Each member votes for its first protocol that all support; most votes win, then the oldest voter's."""
    size = len(group.members)
    of_all = {name for name, count in group.support.items() if count == size}
    votes: dict[str, int] = {}
    for member in group.members.values():
        for protocol in member.protocols:
            if protocol.name in of_all:
                votes[protocol.name] = votes.get(protocol.name, 0) + 1
                break
    return max(votes, key=lambda name: votes[name])


def add_member(turn: Turn, join: Join, member_id: str) -> None:
    """A new member, with its join parked.

    It cannot heartbeat before it is answered, and a client that gave up may come back as another new
    member. So its session is the time that a first join may stay parked.
    """
    group = turn.group
    if not group.members:
        group.protocol_type = join.protocol_type
    member = _member_of(join, member_id)
    group.members[member_id] = member
    _count(group, member, 1)
    if member.instance_id is not None:
        group.instances[member.instance_id] = member_id
    if group.leader is None:
        group.leader = member_id
    if member_id in group.pending:
        group.pending.remove(member_id)
        turn.cancel_timer(pending_timer(member_id))
    if group.initial is not None:
        # From this join on, not another whole delay at the end of the first as in Kafka: nobody waits for nothing.
        left_ms = group.initial.ends_by_ms - turn.scene.now_ms
        turn.set_timer(JOIN_TIMER, max(min(turn.scene.settings.initial_rebalance_delay_ms, left_ms), 0))
    group.joins[member_id] = Parked(join.token, join.version)
    turn.set_timer(session_timer(member_id), turn.scene.settings.new_member_join_timeout_ms)


def update_member(turn: Turn, join: Join) -> None:
    """A known member joins again: what it says now counts, its join is parked."""
    old = turn.group.members[join.member_id]
    _exchange(turn.group, old, _member_of(join, old.member_id, assignment=old.assignment))
    park_join(turn, join.member_id, join)


def replace_static_member(turn: Turn, join: Join, new_id: str) -> None:
    """A static instance came back and does not know its member id: it takes over, the old one is fenced."""
    group = turn.group
    assert join.instance_id is not None
    old = group.members[group.instances[join.instance_id]]
    fenced = ErrorCode.FENCED_INSTANCE_ID
    turn.release_join(old.member_id, JoinAnswer(error=fenced, member_id=old.member_id))
    turn.release_sync(old.member_id, SyncAnswer(error=fenced))
    turn.cancel_timer(session_timer(old.member_id))
    del group.members[old.member_id]
    _exchange(group, old, _member_of(join, new_id, assignment=old.assignment))
    group.instances[join.instance_id] = new_id
    if group.leader == old.member_id:
        group.leader = new_id
    if old.member_id in group.unsynced:
        group.unsynced.remove(old.member_id)
        group.unsynced.add(new_id)


def remove_member(turn: Turn, member_id: str) -> None:
    """Gone: whatever it waits for is answered, and the oldest of the others leads if it led."""
    group = turn.group
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    turn.release_join(member_id, JoinAnswer(error=unknown))
    turn.release_sync(member_id, SyncAnswer(error=unknown))
    turn.cancel_timer(session_timer(member_id))
    member = group.members.pop(member_id)
    _count(group, member, -1)
    if member.instance_id is not None:
        del group.instances[member.instance_id]
    group.unsynced.discard(member_id)
    if group.leader == member_id:
        group.leader = next(iter(group.members), None)
    if group.initial is None:
        turn.store()


def forget_pending(turn: Turn, member_id: str) -> None:
    turn.group.pending.discard(member_id)
    turn.cancel_timer(pending_timer(member_id))


def park_join(turn: Turn, member_id: str, join: Join) -> None:
    """A member that waits is alive: its session does not run until it is answered."""
    parked = Parked(join.token, join.version)
    earlier = turn.group.joins.get(member_id)
    if earlier is None:
        turn.cancel_timer(session_timer(member_id))
    else:
        turn.reply_join(earlier, JoinAnswer(error=_SUPERSEDED, member_id=member_id))
    turn.group.joins[member_id] = parked


def park_sync(turn: Turn, member_id: str, parked: Parked) -> None:
    if not turn.release_sync(member_id, SyncAnswer(error=_SUPERSEDED)):
        turn.cancel_timer(session_timer(member_id))
    turn.group.syncs[member_id] = parked


def _exchange(group: Group, old: Member, new: Member) -> None:
    if new.protocols != old.protocols:
        _count(group, old, -1)
        _count(group, new, 1)
    group.members[new.member_id] = new


def _count(group: Group, member: Member, step: int) -> None:
    for protocol in member.protocols:
        count = group.support.get(protocol.name, 0) + step
        if count:
            group.support[protocol.name] = count
        else:
            del group.support[protocol.name]


def _member_of(join: Join, member_id: str, assignment: bytes = b"") -> Member:
    rebalance_timeout_ms = join.rebalance_timeout_ms
    if join.version == 0 or rebalance_timeout_ms < 0:
        rebalance_timeout_ms = join.session_timeout_ms
    return Member(
        member_id=member_id,
        instance_id=join.instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocols=offered(join.protocols),
        assignment=assignment,
    )


def offered(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    """A name counts once, however often a client lists it."""
    if len(protocols) == 1:
        return protocols
    by_name: dict[str, Protocol] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol)
    return tuple(by_name.values())
