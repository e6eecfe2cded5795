"""JoinGroup: who may join, and whether that needs a rebalance.

The checks are in Kafka's order: session timeout, group missing, group full, Dead, protocols, member. A refused join
changes nothing, and only an accepted one creates a group.
"""

import msgspec

from headrace.groups import identity
from headrace.groups.classic.answers import JoinAnswer, join_answer_for, refusal
from headrace.groups.classic.events import Join
from headrace.groups.classic.members import (
    add_member,
    check_member,
    offered,
    park_join,
    remove_member,
    replace_static_member,
    supports,
    update_member,
    vote,
)
from headrace.groups.classic.rebalance import complete_if_all_joined, current_generation, membership_changed
from headrace.groups.classic.scene import ClassicDecision, Scene, Turn, answered
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import pending_timer
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode

MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9


def join(group: Group | None, event: Join, scene: Scene) -> ClassicDecision:
    error = _check_before_group(event, scene.settings)
    if error:
        return answered(group, event.token, refusal(event, error))
    if group is None:
        if event.member_id:
            return answered(group, event.token, refusal(event, ErrorCode.UNKNOWN_MEMBER_ID))
        fork = Group(group_id=event.group_id, empty_since_ms=scene.now_ms)
    elif _is_full(group, event, scene.settings.max_size):
        return _turn_away(group, event, scene)
    elif group.state is ClassicState.DEAD:
        return answered(group, event.token, refusal(event, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    else:
        fork = group
    if not supports(fork, event.protocol_type, event.protocols):
        return answered(group, event.token, refusal(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not event.member_id:
        return _join_new_member(fork, event, scene)
    return _join_known_member(fork, event, scene)


def _check_before_group(event: Join, settings: GroupSettings) -> ErrorCode:
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest_ms, longest_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest_ms <= event.session_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _is_full(group: Group, event: Join, max_size: int) -> bool:
    """While members join again, those who came are counted: so a limit that was lowered takes effect.

    A static member that comes back does not make the group larger, even without its member id.
    """
    if len(group.members) < max_size:
        return False
    member_id = event.member_id
    if not member_id and event.instance_id is not None:
        member_id = group.instances.get(event.instance_id, "")
    match group.state:
        case ClassicState.EMPTY | ClassicState.DEAD:
            return False
        case ClassicState.PREPARING_REBALANCE:
            return member_id not in group.joins and len(group.joins) >= max_size
        case _:
            return member_id not in group.members and len(group.members) >= max_size


def _turn_away(group: Group, event: Join, scene: Scene) -> ClassicDecision:
    full = JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
    answer = join_answer_for(event.version, full)
    if event.member_id not in group.members:
        return answered(group, event.token, answer)
    turn = Turn(group.fork(), scene)
    turn.reply(event.token, answer)
    remove_member(turn, event.member_id)
    complete_if_all_joined(turn)
    return turn.decision()


def _join_new_member(group: Group, event: Join, scene: Scene) -> ClassicDecision:
    member_id = f"{event.instance_id or event.client_id or 'member'}-{scene.ids.unique()}"
    if event.instance_id is None and event.version >= MEMBER_ID_REQUIRED_FROM:
        return _hand_out_member_id(group, event, scene, member_id)
    turn = Turn(group.fork(), scene)
    if event.instance_id is not None and event.instance_id in group.instances:
        _replace_static(turn, event, member_id)
    else:
        _let_in(turn, event, member_id)
    return turn.decision()


def _let_in(turn: Turn, event: Join, member_id: str) -> None:
    _ensure_identity(turn)
    add_member(turn, event, member_id)
    membership_changed(turn)


def _ensure_identity(turn: Turn) -> None:
    group, scene = turn.group, turn.scene
    if group.identity is None:
        group.identity = identity.mint(group.group_id, scene.org, scene.ids.ulid(), scene.taken_slugs)
        turn.claim(group.identity.slug)
        turn.store()


def _hand_out_member_id(group: Group, event: Join, scene: Scene, member_id: str) -> ClassicDecision:
    """KIP-394: only a client that got its id is let in, so retries leave no ghosts behind.

    Nothing is stored: whoever asks under random names and never comes back must not fill the store.
    """
    required = JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    return ClassicDecision(
        msgspec.structs.replace(group, pending=group.pending | {member_id}),
        replies=((event.token, join_answer_for(event.version, required)),),
        timers={pending_timer(member_id): scene.now_ms + event.session_timeout_ms},
    )


def _replace_static(turn: Turn, event: Join, member_id: str) -> None:
    """KIP-345: an instance that restarts in a Stable group takes its partitions over, without a rebalance."""
    group = turn.group
    leader_before = group.leader
    replace_static_member(turn, event, member_id)
    turn.store()
    if group.state is not ClassicState.STABLE or vote(group) != group.protocol_name:
        park_join(turn, member_id, event)
        membership_changed(turn)
        return
    answer = current_generation(group, member_id, skip_assignment=member_id == group.leader)
    if event.version < SKIP_ASSIGNMENT_FROM:
        # It cannot be told to skip the assignment; named another leader, it does not try to make one.
        answer = msgspec.structs.replace(answer, leader=leader_before or "", members=(), skip_assignment=False)
    turn.renew_session(member_id)
    turn.reply(event.token, join_answer_for(event.version, answer))


def _join_known_member(group: Group, event: Join, scene: Scene) -> ClassicDecision:
    if event.member_id in group.pending and event.instance_id is None:
        turn = Turn(group.fork(), scene)
        _let_in(turn, event, event.member_id)
        return turn.decision()
    error = check_member(group, event.member_id, event.instance_id)
    if error:
        return answered(group, event.token, refusal(event, error))
    if not _needs_rebalance(group, event):
        answer = current_generation(group, event.member_id)
        return answered(group, event.token, join_answer_for(event.version, answer))
    turn = Turn(group.fork(), scene)
    update_member(turn, event)
    membership_changed(turn)
    return turn.decision()


def _needs_rebalance(group: Group, event: Join) -> bool:
    """The leader of a Stable group may always ask for one: it may know of new partitions."""
    changed = group.members[event.member_id].protocols != offered(event.protocols)
    match group.state:
        case ClassicState.COMPLETING_REBALANCE:
            return changed
        case ClassicState.STABLE:
            return changed or event.member_id == group.leader
        case _:
            return True
