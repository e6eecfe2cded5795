"""The rebalance itself: begin it, wait for the members, hand out the next generation.

Both halves of a rebalance have a time limit. Members that do not rejoin in time are removed, except static ones, which
are expected back; members that joined but do not sync in time are removed as well.
"""

from headrace.groups.classic.answers import JoinAnswer, JoinedMember, SyncAnswer
from headrace.groups.classic.members import remove_member, vote
from headrace.groups.classic.scene import Turn
from headrace.groups.classic.state import Group, InitialDelay
from headrace.groups.classic.table import ClassicState, Trigger
from headrace.groups.classic.timers import JOIN_TIMER, SYNC_TIMER
from headrace.wire.errors import ErrorCode

_SETTLED = (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)


def membership_changed(turn: Turn) -> None:
    """Somebody joined, changed, left or failed: begin a rebalance, or see whether this one is complete."""
    match turn.group.state:
        case ClassicState.EMPTY:
            _begin_initial(turn)
        case ClassicState.STABLE | ClassicState.COMPLETING_REBALANCE:
            _begin(turn)
        case ClassicState.PREPARING_REBALANCE:
            complete_if_all_joined(turn)
        case ClassicState.DEAD:
            pass


def complete_if_all_joined(turn: Turn) -> None:
    """An initial rebalance waits for its delay all the same: more members are likely to come."""
    group = turn.group
    if group.state is ClassicState.PREPARING_REBALANCE and group.initial is None and group.all_joined():
        complete_join(turn)


def _begin_initial(turn: Turn) -> None:
    group = turn.group
    delay_ms = turn.scene.settings.initial_rebalance_delay_ms
    turn.move(Trigger.FIRST_JOIN)
    if delay_ms == 0:
        complete_join(turn)
        return
    group.initial = InitialDelay(turn.scene.now_ms + max(group.rebalance_timeout_ms(), delay_ms))
    turn.set_timer(JOIN_TIMER, delay_ms)


def _begin(turn: Turn) -> None:
    """Stored, so that a restart in the middle goes on with the rebalance that the members were told of."""
    _send_back_waiting_syncs(turn)
    turn.group.unsynced.clear()
    turn.cancel_timer(SYNC_TIMER)
    turn.move(Trigger.MEMBERSHIP_CHANGED)
    turn.store()
    if turn.group.all_joined():
        complete_join(turn)
    else:
        turn.set_timer(JOIN_TIMER, turn.group.rebalance_timeout_ms())


def _send_back_waiting_syncs(turn: Turn) -> None:
    for member_id in list(turn.group.syncs):
        turn.release_sync(member_id, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        if member_id not in turn.group.joins:
            turn.renew_session(member_id)


def join_timer_fired(turn: Turn) -> None:
    group = turn.group
    if group.state is not ClassicState.PREPARING_REBALANCE:
        turn.cancel_timer(JOIN_TIMER)
        return
    complete_join(turn)


def sync_timer_fired(turn: Turn) -> None:
    turn.cancel_timer(SYNC_TIMER)
    if turn.group.state not in _SETTLED or not turn.group.unsynced:
        return
    for member_id in sorted(turn.group.unsynced):
        remove_member(turn, member_id)
    membership_changed(turn)


def complete_join(turn: Turn) -> None:
    """The join phase is over: who is here makes the next generation."""
    group = turn.group
    turn.cancel_timer(JOIN_TIMER)
    missing = [member_id for member_id in group.members if member_id not in group.joins]
    for member_id in missing:
        if not group.members[member_id].is_static:
            remove_member(turn, member_id)
    if group.members and not _leader_is_present(group):
        # Only static members are left and none came: wait until they do or their sessions end.
        group.initial = None
        turn.set_timer(JOIN_TIMER, group.rebalance_timeout_ms())
        return
    group.initial = None
    group.generation += 1
    turn.store()
    if group.members:
        _hand_out_generation(turn)
    else:
        _become_empty(turn)


def _leader_is_present(group: Group) -> bool:
    """The leader has to have joined; if it did not, the oldest member that did takes over."""
    if group.leader not in group.joins:
        group.leader = next((m for m in group.members if m in group.joins), group.leader)
    return group.leader in group.joins


def _hand_out_generation(turn: Turn) -> None:
    group = turn.group
    group.protocol_name = vote(group)
    group.empty_since_ms = None
    group.are_assigned = False
    turn.move(Trigger.ALL_JOINED)
    group.unsynced = set(group.members)
    for member_id in group.members:
        turn.release_join(member_id, current_generation(group, member_id))
        turn.renew_session(member_id)
    turn.set_timer(SYNC_TIMER, group.rebalance_timeout_ms())


def _become_empty(turn: Turn) -> None:
    group = turn.group
    group.protocol_name = None
    group.leader = None
    group.empty_since_ms = turn.scene.now_ms
    turn.move(Trigger.LAST_MEMBER_GONE)


def current_generation(group: Group, member_id: str, *, skip_assignment: bool = False) -> JoinAnswer:
    """The answer to a member's Join; the leader's also lists all members."""
    assert group.leader is not None
    return JoinAnswer(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=joined_members(group) if member_id == group.leader else (),
    )


def joined_members(group: Group) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(m.member_id, m.instance_id, m.metadata(group.protocol_name) or b"") for m in group.members.values()
    )
