"""The group's word on offsets: may this commit be stored, may these offsets be deleted, which are too old?

The offsets themselves are in the store. The machine only knows who may write them.
"""

from headrace.groups.answers import CommitAnswer, OffsetDeleteAnswer
from headrace.groups.errors import ErrorCode
from headrace.groups.events import CommitCheck, OffsetDeleteCheck
from headrace.groups.heartbeat import renewed_session
from headrace.groups.members import check_member
from headrace.groups.scene import Decision, Reply, Scene, Turn, answered
from headrace.groups.settings import GroupSettings
from headrace.groups.state import CONSUMER_PROTOCOL_TYPE, Group
from headrace.groups.subscription import is_subscribed, subscribed_topics
from headrace.groups.table import FIXED_ANSWERS, Api, State
from headrace.groups.timers import TimerChanges

NOT_FOUND_FROM = 9
_RENEWING = (State.STABLE, State.PREPARING_REBALANCE)


def commit_check(group: Group | None, event: CommitCheck, scene: Scene) -> Decision:
    if group is None:
        return _commit_without_group(event, scene)
    error = _check_commit(group, event)
    timers: TimerChanges = {}
    if not error and group.state in _RENEWING:
        timers = renewed_session(group, event.member_id, scene)
    return Decision(group, replies=(Reply(event.token, CommitAnswer(error)),), timers=timers)


def _commit_without_group(event: CommitCheck, scene: Scene) -> Decision:
    """A consumer that assigns its own partitions commits without joining: that makes a simple group."""
    if event.generation >= 0:
        not_found = event.version >= NOT_FOUND_FROM
        error = ErrorCode.GROUP_ID_NOT_FOUND if not_found else ErrorCode.ILLEGAL_GENERATION
        return answered(None, event.token, CommitAnswer(error))
    turn = Turn(Group(group_id=event.group_id, empty_since_ms=scene.now_ms), scene)
    turn.store()
    turn.reply(event.token, CommitAnswer(ErrorCode.NONE))
    return turn.decision()


def _check_commit(group: Group, event: CommitCheck) -> ErrorCode:
    fixed = FIXED_ANSWERS[Api.COMMIT]
    if group.state is State.DEAD:
        return fixed[State.DEAD]
    if event.generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_member(group, event.member_id, event.instance_id)
    if error:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return fixed.get(group.state, ErrorCode.NONE)


def offset_delete_check(group: Group | None, event: OffsetDeleteCheck, scene: Scene) -> Decision:
    return answered(group, event.token, _check_offset_delete(group, event))


def _check_offset_delete(group: Group | None, event: OffsetDeleteCheck) -> OffsetDeleteAnswer:
    fixed = FIXED_ANSWERS[Api.OFFSET_DELETE]
    if not event.group_id:
        return OffsetDeleteAnswer(ErrorCode.INVALID_GROUP_ID)
    state = group.state if group is not None else None
    if group is None or state in fixed:
        return OffsetDeleteAnswer(fixed[state])
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return OffsetDeleteAnswer(ErrorCode.NON_EMPTY_GROUP)
    known_topics = subscribed_topics(group)
    refused = frozenset(topic for topic in event.topics if is_subscribed(group, topic, known_topics))
    return OffsetDeleteAnswer(ErrorCode.NONE, refused)


def expired_topics(
    group: Group, last_commit_ms: dict[str, int], now_ms: int, settings: GroupSettings
) -> frozenset[str]:
    """The topics whose offsets may be forgotten, by the time of the last commit in each.

    A group that was joined keeps all until it has been Empty for the retention time. A simple group, and
    topics that a Stable group of consumers no longer reads, keep them for that time after the last commit.
    """
    horizon_ms = now_ms - settings.offsets_retention_ms
    old = frozenset(topic for topic, commit_ms in last_commit_ms.items() if commit_ms <= horizon_ms)
    if group.protocol_type is None:
        return old
    if group.state is State.EMPTY:
        return old if _empty_long_enough(group, horizon_ms) else frozenset()
    known_topics = subscribed_topics(group)
    if group.state is State.STABLE and known_topics is not None:
        return old - known_topics
    return frozenset()


def retention_ended(group: Group, last_commit_ms: int | None, now_ms: int, settings: GroupSettings) -> bool:
    """May the group itself be forgotten, its id and generation included?"""
    if group.state is not State.EMPTY or group.pending:
        return False
    horizon_ms = now_ms - settings.offsets_retention_ms
    if last_commit_ms is not None and last_commit_ms > horizon_ms:
        return False
    return _empty_long_enough(group, horizon_ms)


def _empty_long_enough(group: Group, horizon_ms: int) -> bool:
    return group.empty_since_ms is not None and group.empty_since_ms <= horizon_ms
