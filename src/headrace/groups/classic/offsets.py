"""A group's rules for offsets: who may commit them, which may be deleted, which have expired.

The offsets themselves are rows next to the group, stored in the same write. The machine does not look into them.
"""

from collections.abc import Mapping

from headrace.groups.classic.answers import CommitAnswer, OffsetDeleteAnswer
from headrace.groups.classic.events import Commit, OffsetDelete, TransactionEnded, TxnCommit
from headrace.groups.classic.heartbeat import renewed_session
from headrace.groups.classic.members import check_member
from headrace.groups.classic.scene import ClassicDecision, Reply, Scene, Turn, answered
from headrace.groups.classic.state import CONSUMER_PROTOCOL_TYPE, Group
from headrace.groups.classic.subscription import is_subscribed, subscribed_topics
from headrace.groups.classic.table import FIXED_ANSWERS, ClassicState, GroupApi
from headrace.groups.classic.timers import TimerChanges
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode
from headrace.wire.topic_partition import TopicPartition

NOT_FOUND_FROM = 9
_RENEWING = (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE)


def commit(group: Group | None, event: Commit, scene: Scene) -> ClassicDecision:
    if group is None:
        return _commit_without_group(event, scene)
    error = _check_commit(group, event)
    reply: Reply = (event.token, CommitAnswer(error))
    if error:
        return ClassicDecision(group, replies=(reply,))
    timers: TimerChanges = {}
    if group.state in _RENEWING:
        timers = renewed_session(group, event.member_id, scene)
    return ClassicDecision(group, replies=(reply,), timers=timers, rows=event.offsets)


def txn_commit(group: Group | None, event: TxnCommit, scene: Scene) -> ClassicDecision:
    """A member is checked where one is named; whoever names none may commit, as in Kafka: its producer is known."""
    if group is None:
        return _commit_without_group(event, scene)
    error = ErrorCode.NONE
    if group.state is ClassicState.DEAD:
        error = FIXED_ANSWERS[GroupApi.COMMIT][ClassicState.DEAD]
    elif event.generation >= 0 or event.member_id or event.instance_id is not None:
        error = check_member(group, event.member_id, event.instance_id)
        if not error and event.generation != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
    rows = {} if error else event.offsets
    return ClassicDecision(group, replies=((event.token, CommitAnswer(error)),), rows=rows)


def transaction_ended(group: Group | None, event: TransactionEnded, scene: Scene) -> ClassicDecision:
    """Applies or drops pending offsets; a group deleted meanwhile has none."""
    return ClassicDecision(group, rows=event.rows if group is not None else {})


def _commit_without_group(event: Commit, scene: Scene) -> ClassicDecision:
    """A consumer that assigns its own partitions commits without joining: that makes a simple group."""
    if event.generation >= 0:
        not_found = event.version >= NOT_FOUND_FROM and not isinstance(event, TxnCommit)
        error = ErrorCode.GROUP_ID_NOT_FOUND if not_found else ErrorCode.ILLEGAL_GENERATION
        return answered(None, event.token, CommitAnswer(error))
    turn = Turn(Group(group_id=event.group_id, empty_since_ms=scene.now_ms), scene)
    turn.store()
    turn.store_rows(event.offsets)
    turn.reply(event.token, CommitAnswer(ErrorCode.NONE))
    return turn.decision()


def _check_commit(group: Group, event: Commit) -> ErrorCode:
    fixed = FIXED_ANSWERS[GroupApi.COMMIT]
    if group.state is ClassicState.DEAD:
        return fixed[ClassicState.DEAD]
    if event.generation < 0 and group.state is ClassicState.EMPTY:
        return ErrorCode.NONE
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_member(group, event.member_id, event.instance_id)
    if error:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return fixed.get(group.state, ErrorCode.NONE)


def offset_delete(group: Group | None, event: OffsetDelete, scene: Scene) -> ClassicDecision:
    answer = _check_offset_delete(group, event)
    doomed = () if answer.error else (place for place in event.places if place[0] not in answer.subscribed)
    return ClassicDecision(group, replies=((event.token, answer),), rows=dict.fromkeys(doomed))


def _check_offset_delete(group: Group | None, event: OffsetDelete) -> OffsetDeleteAnswer:
    fixed = FIXED_ANSWERS[GroupApi.OFFSET_DELETE]
    if not event.group_id:
        return OffsetDeleteAnswer(ErrorCode.INVALID_GROUP_ID)
    state = group.state if group is not None else None
    if group is None or state in fixed:
        return OffsetDeleteAnswer(fixed[state])
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return OffsetDeleteAnswer(ErrorCode.NON_EMPTY_GROUP)
    known_topics = subscribed_topics(group)
    topics = {topic for topic, _ in event.places}
    refused = frozenset(topic for topic in topics if is_subscribed(group, topic, known_topics))
    return OffsetDeleteAnswer(ErrorCode.NONE, refused)


def expired_offsets(
    group: Group, commits: Mapping[TopicPartition, int], now_ms: int, settings: GroupSettings
) -> set[TopicPartition]:
    """The offsets that may be forgotten, by the time of each commit."""
    last_commit_ms: dict[str, int] = {}
    for (topic, _), commit_ms in commits.items():
        last_commit_ms[topic] = max(last_commit_ms.get(topic, 0), commit_ms)
    topics = expired_topics(group, last_commit_ms, now_ms, settings)
    return {place for place in commits if place[0] in topics}


def expired_topics(
    group: Group, last_commit_ms: Mapping[str, int], now_ms: int, settings: GroupSettings
) -> frozenset[str]:
    """The topics whose offsets may be forgotten, by the time of the last commit in each.

    A group that was joined keeps all until it has been Empty for the retention time. A simple group, and
    topics that a Stable group of consumers no longer reads, keep them for that time after the last commit.
    """
    horizon_ms = now_ms - settings.offsets_retention_ms
    old = frozenset(topic for topic, commit_ms in last_commit_ms.items() if commit_ms <= horizon_ms)
    if group.protocol_type is None:
        return old
    if group.state is ClassicState.EMPTY:
        return old if _empty_long_enough(group, horizon_ms) else frozenset()
    known_topics = subscribed_topics(group)
    if group.state is ClassicState.STABLE and known_topics is not None:
        return old - known_topics
    return frozenset()


def retention_ended(group: Group, last_commit_ms: int | None, now_ms: int, settings: GroupSettings) -> bool:
    """May the group itself be forgotten, its id and generation included?"""
    if group.state is not ClassicState.EMPTY or group.pending:
        return False
    horizon_ms = now_ms - settings.offsets_retention_ms
    if last_commit_ms is not None and last_commit_ms > horizon_ms:
        return False
    return _empty_long_enough(group, horizon_ms)


def _empty_long_enough(group: Group, horizon_ms: int) -> bool:
    return group.empty_since_ms is not None and group.empty_since_ms <= horizon_ms
