"""A broker in miniature for one group, on a virtual clock: stores, adopts, answers, fires timers.

It keeps the machine's rules (one event at a time; store, adopt, answer) and checks on the way that no
request is answered twice and that deciding changes nothing that is not adopted.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from headrace.broker.owned.timers import Timers
from headrace.groups.classic import snapshot
from headrace.groups.classic.answers import (
    Answer,
    CommitAnswer,
    DeleteAnswer,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    OffsetDeleteAnswer,
    SyncAnswer,
    refusal,
)
from headrace.groups.classic.events import (
    Commit,
    Delete,
    Event,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Load,
    OffsetDelete,
    Request,
    Resume,
    RetentionCheck,
    Sync,
    TimersFired,
    Unload,
)
from headrace.groups.classic.machine import ClassicMachine
from headrace.groups.classic.scene import ClassicDecision
from headrace.groups.classic.snapshot import StoredGroup
from headrace.groups.classic.state import Group, Protocol
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import TimerKey
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode

GROUP_ID = "orders"
JOIN_VERSIONS = range(10)
SYNC_VERSIONS = range(6)
HEARTBEAT_VERSIONS = range(5)
LEAVE_VERSIONS = range(6)
COMMIT_VERSIONS = range(10)
DELETE_VERSIONS = range(3)
DESCRIBE_VERSIONS = range(7)

SESSION_MS = 10_000
REBALANCE_MS = 60_000
START_MS = 1_700_000_000_000
NO_DELAY = GroupSettings(initial_rebalance_delay_ms=0)
RANGE = (Protocol("range", b"range-metadata"),)

SomeAnswer = TypeVar("SomeAnswer", bound=Answer)


def parse(stored: dict[str, bytes]) -> StoredGroup:
    return snapshot.from_fields(GROUP_ID, {field: snapshot.unpack(field, raw) for field, raw in stored.items()})


class CountingIds:
    """Ids that a reader can follow: client-1, client-2, ..."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._ulids = count(1)

    def unique(self) -> str:
        return str(next(self._numbers))

    def ulid(self) -> str:
        return f"01HF{next(self._ulids):022d}"


class Driver:
    def __init__(
        self,
        settings: GroupSettings = NO_DELAY,
        *,
        taken_slugs: Iterable[str] = (),
        protocol_type: str = "consumer",
        protocols: tuple[Protocol, ...] = RANGE,
        org: str = "default",
    ) -> None:
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.machine = ClassicMachine(settings, CountingIds(), org)
        for slug in taken_slugs:
            self.machine.claim_refused(slug)
        self.group: Group | None = None
        self.timers: Timers[TimerKey] = Timers()
        self.stored: dict[str, bytes] | None = None
        self.stores = 0
        self.now_ms = START_MS
        self.answers: dict[int, Answer] = {}
        self.owed: set[int] = set()
        self.store_is_down = False
        self.watch: Callable[[ClassicDecision], None] = lambda decision: None
        self._tokens = count(1)

    # what a broker does

    def decide(self, event: Event) -> ClassicDecision | None:
        """None: it could not be stored, and was dropped."""
        before = repr(self.group)
        decision = self.machine.decide(self.group, event, self.now_ms)
        assert repr(self.group) == before, "a decision that may be dropped must not change the group"
        if self.store_is_down and (decision.store is not None or decision.tombstone):
            if isinstance(event, Request):
                self._answer(event.token, refusal(event, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return None
        if decision.store is not None:
            self.stored = {field: snapshot.pack(value) for field, value in snapshot.fields(decision.store).items()}
            self.stores += 1
        if decision.tombstone:
            self.stored = None
        self.group = decision.state
        self.timers.adopt(decision.timers)
        for token, answer in decision.replies:
            self._answer(token, answer)
        self.watch(decision)
        return decision

    def send(self, request: Request) -> int:
        token = request.token
        assert isinstance(token, int)
        self.owed.add(token)
        assert isinstance(request, Event)
        self.decide(request)
        return token

    def advance(self, ms: int) -> None:
        """Let time pass, and fire what falls due at the moment that it does."""
        end_ms = self.now_ms + ms
        while (wake_ms := self.timers.wake_ms()) is not None and wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            due = self.timers.due(self.now_ms)
            if due and self.decide(TimersFired(tuple(due))) is None:
                break
        self.now_ms = end_ms

    def restart(self) -> None:
        """The process dies: connections, timers and whatever was not stored are gone."""
        self.owed.clear()
        self.group, self.timers = None, Timers[TimerKey]()
        if self.stored is not None:
            self.decide(Load(parse(self.stored)))

    def take(self, token: int, kind: type[SomeAnswer]) -> SomeAnswer | None:
        """The answer to a request, None while it is parked."""
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, kind)
        return answer

    def _answer(self, token: object, answer: Answer) -> None:
        assert isinstance(token, int)
        assert token in self.owed, "answered twice, or after its connection was lost"
        self.owed.remove(token)
        self.answers[token] = answer

    # requests; each returns its token

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] | None = None,
        protocol_type: str | None = None,
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        client_id: str = "client",
        group_id: str = GROUP_ID,
    ) -> int:
        return self.send(
            Join(
                token=next(self._tokens),
                group_id=group_id,
                version=version,
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else -1,
                protocol_type=self.protocol_type if protocol_type is None else protocol_type,
                protocols=self.protocols if protocols is None else protocols,
            )
        )

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        version: int = 5,
        instance_id: str | None = None,
        assignments: dict[str, bytes] | None = None,
        protocol_type: str | None = "",
        protocol_name: str | None = "",
        group_id: str = GROUP_ID,
    ) -> int:
        """The protocol fields, unless given, are those that the group has."""
        if protocol_type == "":
            protocol_type = self.protocol_type
        if protocol_name == "":
            protocol_name = (self.group and self.group.protocol_name) or "range"
        return self.send(
            Sync(
                token=next(self._tokens),
                group_id=group_id,
                version=version,
                member_id=member_id,
                generation=self.generation if generation is None else generation,
                instance_id=instance_id,
                protocol_type=protocol_type if version >= 5 else None,
                protocol_name=protocol_name if version >= 5 else None,
                assignments=tuple((assignments or {}).items()),
            )
        )

    def heartbeat(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        version: int = 4,
        instance_id: str | None = None,
        group_id: str = GROUP_ID,
    ) -> ErrorCode:
        token = self.send(
            Heartbeat(
                token=next(self._tokens),
                group_id=group_id,
                version=version,
                member_id=member_id,
                generation=self.generation if generation is None else generation,
                instance_id=instance_id,
            )
        )
        return self._now(token, HeartbeatAnswer).error

    def leave(self, *members: LeavingMember, version: int = 5, group_id: str = GROUP_ID) -> LeaveAnswer:
        token = self.send(Leave(token=next(self._tokens), group_id=group_id, version=version, members=members))
        return self._now(token, LeaveAnswer)

    def leave_one(self, member_id: str, version: int = 5) -> ErrorCode:
        answer = self.leave(LeavingMember(member_id), version=version)
        return answer.members[0].error if answer.members else answer.error

    def commit(
        self,
        member_id: str = "",
        generation: int | None = -1,
        *,
        version: int = 9,
        instance_id: str | None = None,
        group_id: str = GROUP_ID,
    ) -> ErrorCode:
        token = self.send(
            Commit(
                token=next(self._tokens),
                group_id=group_id,
                version=version,
                member_id=member_id,
                generation=self.generation if generation is None else generation,
                instance_id=instance_id,
            )
        )
        return self._now(token, CommitAnswer).error

    def offset_delete(self, *topics: str, group_id: str = GROUP_ID) -> OffsetDeleteAnswer:
        places = frozenset((topic, 0) for topic in topics)
        token = self.send(OffsetDelete(token=next(self._tokens), group_id=group_id, version=0, places=places))
        return self._now(token, OffsetDeleteAnswer)

    def delete(self, version: int = 2) -> ErrorCode:
        token = self.send(Delete(token=next(self._tokens), group_id=GROUP_ID, version=version))
        return self._now(token, DeleteAnswer).error

    def unload(self) -> None:
        self.decide(Unload())

    def resume(self) -> None:
        self.decide(Resume())

    def check_retention(self, last_commit_ms: int | None = None) -> None:
        self.decide(RetentionCheck({} if last_commit_ms is None else {("t", 0): last_commit_ms}))

    def _now(self, token: int, kind: type[SomeAnswer]) -> SomeAnswer:
        answer = self.take(token, kind)
        assert answer is not None, "this request is never parked"
        return answer

    # shortcuts

    @property
    def generation(self) -> int:
        return self.group.generation if self.group is not None else 0

    @property
    def state(self) -> ClassicState | None:
        return self.group.state if self.group is not None else None

    def is_in(self, state: ClassicState) -> bool:
        return self.state is state

    @property
    def the_group(self) -> Group:
        assert self.group is not None
        return self.group

    def joined(self, token: int) -> JoinAnswer:
        return self._now(token, JoinAnswer)

    def synced(self, token: int) -> SyncAnswer:
        return self._now(token, SyncAnswer)

    def is_parked(self, token: int) -> bool:
        return token in self.owed

    def new_member_id(self, session_timeout_ms: int = SESSION_MS) -> str:
        """A dynamic client's first step since version 4: ask, and be given an id."""
        answer = self.joined(self.join(session_timeout_ms=session_timeout_ms))
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def sync_all(self, leader: str) -> None:
        """Everybody syncs; each member is assigned its own name."""
        members = list(self.the_group.members)
        tokens = [self.sync(m) for m in members if m != leader]
        tokens.append(self.sync(leader, assignments={m: m.encode() for m in members}))
        assert all(self.synced(t).error is ErrorCode.NONE for t in tokens)


def stable_group(
    size: int = 2,
    settings: GroupSettings = NO_DELAY,
    *,
    protocol_type: str = "consumer",
    protocols: tuple[Protocol, ...] = RANGE,
) -> tuple[Driver, list[str]]:
    """A Stable group of dynamic members, the leader first."""
    driver = Driver(settings, protocol_type=protocol_type, protocols=protocols)
    members: list[str] = []
    for _ in range(size):
        member_id = driver.new_member_id()
        rejoin(driver, *members, member_id)
        members.append(member_id)
    driver.sync_all(members[0])
    assert driver.state is ClassicState.STABLE
    return driver, members


def rejoin(driver: Driver, *member_ids: str) -> None:
    """All of them join; whoever is new comes first, so that the others are asked to."""
    tokens = [driver.join(member_id) for member_id in reversed(member_ids)]
    driver.advance(0)
    assert all(driver.joined(t).error is ErrorCode.NONE for t in tokens)


def group_in(
    state: ClassicState | None, *, protocol_type: str = "consumer", protocols: tuple[Protocol, ...] = RANGE
) -> tuple[Driver, str]:
    """A driver whose group is in that state, and a member id that the group knows where it can."""
    if state is None:
        return Driver(), "nobody"
    driver, (leader, follower) = stable_group(protocol_type=protocol_type, protocols=protocols)
    match state:
        case ClassicState.EMPTY:
            driver.leave(LeavingMember(leader), LeavingMember(follower))
        case ClassicState.PREPARING_REBALANCE:
            driver.join(leader)
        case ClassicState.COMPLETING_REBALANCE:
            rejoin(driver, follower, leader)
        case ClassicState.DEAD:
            driver.unload()
        case ClassicState.STABLE:
            pass
    assert driver.state is state
    return driver, follower
