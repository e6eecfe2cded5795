"""The life cycle of a group on this node: loaded, resumed, unloaded, deleted, forgotten.

A restart is a load and nothing else. The group is what was stored last:

- Stable: the same generation and assignments; sessions restart, so nobody has to rejoin.
- CompletingRebalance: the generation had been handed out, its assignment was not stored. The group waits for syncs
  again. A member that lost its Join or Sync with the connection rejoins unchanged and gets the same generation.
- PreparingRebalance: members know, or will learn by 27 from their next heartbeat, that they have to rejoin. Continuing
  that rebalance is right: calling the group Stable would lose the change that began it, and a member that left would
  keep its partitions until its session expires.
- Empty: also a group in its initial rebalance. Its joins were not answered yet; members come back with an id that is
  now unknown, get 25, and start over.
"""

from headrace.groups.classic import snapshot
from headrace.groups.classic.answers import DeleteAnswer, JoinAnswer, SyncAnswer
from headrace.groups.classic.events import Delete, Load, Resume, RetentionCheck, Unload
from headrace.groups.classic.offsets import expired_offsets, retention_ended
from headrace.groups.classic.rebalance import membership_changed
from headrace.groups.classic.scene import ClassicDecision, Scene, Turn, answered
from headrace.groups.classic.state import Group
from headrace.groups.classic.table import FIXED_ANSWERS, ClassicState, GroupApi, Trigger
from headrace.groups.classic.timers import JOIN_TIMER, SYNC_TIMER, pending_timer, session_timer


def load(group: Group | None, event: Load, scene: Scene) -> ClassicDecision:
    turn = Turn(snapshot.restore(event.stored), scene)
    loaded = turn.group
    for member_id in loaded.members:
        turn.renew_session(member_id)
    if loaded.state is ClassicState.COMPLETING_REBALANCE:
        loaded.unsynced = set(loaded.members)
        turn.set_timer(SYNC_TIMER, loaded.rebalance_timeout_ms())
    elif loaded.state is ClassicState.PREPARING_REBALANCE:
        turn.set_timer(JOIN_TIMER, loaded.rebalance_timeout_ms())
    if len(loaded.members) > scene.settings.max_size and loaded.state is not ClassicState.PREPARING_REBALANCE:
        # The limit was lowered meanwhile: a rebalance lets members commit before some are turned away.
        membership_changed(turn)
    return turn.decision()


def resume(group: Group | None, event: Resume, scene: Scene) -> ClassicDecision:
    """Every timeout that members have to keep starts anew; the initial delay, which nobody has to, goes on."""
    if group is None or group.state is ClassicState.DEAD:
        return ClassicDecision(group)
    turn = Turn(group.fork(), scene)
    for member_id in group.members:
        if not group.is_parked(member_id):
            turn.renew_session(member_id)
    if group.unsynced:
        turn.set_timer(SYNC_TIMER, group.rebalance_timeout_ms())
    elif group.state is ClassicState.PREPARING_REBALANCE and group.initial is None:
        turn.set_timer(JOIN_TIMER, group.rebalance_timeout_ms())
    return turn.decision()


def unload(group: Group | None, event: Unload, scene: Scene) -> ClassicDecision:
    if group is None or group.state is ClassicState.DEAD:
        return ClassicDecision(group)
    turn = Turn(group.fork(), scene)
    for member_id in list(turn.group.joins):
        turn.release_join(member_id, JoinAnswer(error=event.error, member_id=member_id))
    for member_id in list(turn.group.syncs):
        turn.release_sync(member_id, SyncAnswer(error=event.error))
    _end(turn, Trigger.UNLOADED)
    return turn.decision()


def delete(group: Group | None, event: Delete, scene: Scene) -> ClassicDecision:
    error = FIXED_ANSWERS[GroupApi.DELETE][group.state if group is not None else None]
    if error or group is None:
        return answered(group, event.token, DeleteAnswer(error))
    turn = Turn(group.fork(), scene)
    turn.reply(event.token, DeleteAnswer(error))
    turn.bury()
    _end(turn, Trigger.DELETED)
    return turn.decision()


def retention_check(group: Group | None, event: RetentionCheck, scene: Scene) -> ClassicDecision:
    """Offsets of topics that are gone go with them, the others when their time is over; the group when all went."""
    doomed = set(event.gone)
    if group is not None:
        doomed |= expired_offsets(group, event.commits, scene.now_ms, scene.settings)
    left = [commit_ms for place, commit_ms in event.commits.items() if place not in doomed]
    if group is None:  # what a crash left of a group that was never stored whole
        return ClassicDecision(None, tombstone=not left, rows=dict.fromkeys(doomed))
    if not retention_ended(group, max(left, default=None), scene.now_ms, scene.settings):
        return ClassicDecision(group, rows=dict.fromkeys(doomed))
    turn = Turn(group.fork(), scene)
    turn.bury()
    _end(turn, Trigger.DELETED)
    return turn.decision()


def _end(turn: Turn, trigger: Trigger) -> None:
    """No timer outlives its group. What is still queued for the Dead group is answered as Dead."""
    group = turn.group
    for key in (
        JOIN_TIMER,
        SYNC_TIMER,
        *map(session_timer, group.members),
        *map(pending_timer, group.pending),
    ):
        turn.cancel_timer(key)
    turn.move(trigger)
    turn.group = Group(group_id=group.group_id, identity=group.identity, state=group.state)
