"""Whatever order joins, syncs, heartbeats, leaves, commits, timeouts, failed stores and restarts come in:

at most one owner per partition and generation; generations only grow; each parked request is answered
exactly once; what was answered was stored; load(fields(state)) gives the same state; no timer leaks.
"""

from collections.abc import Iterator

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.groups.classic import snapshot
from headrace.groups.classic.answers import JoinAnswer, SyncAnswer
from headrace.groups.classic.events import LeavingMember
from headrace.groups.classic.scene import ClassicDecision
from headrace.groups.classic.state import Group, Protocol
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import JOIN_TIMER, SYNC_TIMER, TimerKind
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode
from tests.groups.classic.driver import Driver, parse

PARTITIONS = 6
CLIENTS = 5
SETTLED = (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)
PROTOCOLS = {
    "range": (Protocol("range", b"r"),),
    "both": (Protocol("sticky", b"s"), Protocol("range", b"r")),
    "changed": (Protocol("range", b"r2"),),
}


class Client(msgspec.Struct):
    """A consumer as far as groups go: it does what its answers tell it."""

    number: int
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    join_token: int | None = None
    sync_token: int | None = None

    def forget(self) -> None:
        self.member_id, self.generation, self.leads = "", -1, ()


class GroupUnderFire(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(GroupSettings(initial_rebalance_delay_ms=3_000, max_size=4))
        self.driver.watch = self.check_decision
        self.clients = [Client(n, f"static-{n}" if n % 2 else None) for n in range(CLIENTS)]
        self.owners: dict[tuple[str, int, int], str] = {}
        self.highest_generation = 0

    # what clients do

    @rule(
        number=st.integers(0, CLIENTS - 1),
        version=st.sampled_from([0, 3, 5, 8, 9]),
        protocols=st.sampled_from(sorted(PROTOCOLS)),
        session_timeout_ms=st.sampled_from([6_000, 10_000]),
        rebalance_timeout_ms=st.sampled_from([5_000, 20_000]),
    )
    def join(
        self,
        number: int,
        version: int,
        protocols: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        client = self.clients[number]
        client.join_token = self.driver.join(
            client.member_id,
            version=max(version, 5) if client.instance_id else version,
            instance_id=client.instance_id,
            protocols=PROTOCOLS[protocols],
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        self.deliver()

    @rule()
    def everybody_joins(self) -> None:
        """Twice, because the first answer to a dynamic member is its id."""
        for number in [*range(CLIENTS), *range(CLIENTS)]:
            if self.clients[number].join_token is None:
                self.join(number, 9, "both", 10_000, 20_000)

    @rule()
    def the_join_phase_runs_to_its_end(self) -> None:
        self.everybody_joins()
        while any(client.join_token is not None for client in self.clients):
            self.driver.store_is_down = False
            self.time_passes(1_000)

    @rule()
    def the_rebalance_runs_to_its_end(self) -> None:
        self.the_join_phase_runs_to_its_end()
        self.everybody_syncs()

    @rule(number=st.integers(0, CLIENTS - 1))
    def sync(self, number: int) -> None:
        client = self.clients[number]
        assignments = dict(_round_robin(client.leads)) if client.leads else {}
        client.sync_token = self.driver.sync(
            client.member_id, client.generation, instance_id=client.instance_id, assignments=assignments
        )
        self.deliver()

    @rule()
    def everybody_syncs(self) -> None:
        for number in range(CLIENTS):
            if self.clients[number].sync_token is None:
                self.sync(number)

    @rule(number=st.integers(0, CLIENTS - 1))
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        error = self.driver.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()

    @rule(number=st.integers(0, CLIENTS - 1), stale=st.booleans())
    def commit(self, number: int, stale: bool) -> None:
        client = self.clients[number]
        generation = client.generation - 1 if stale and client.generation > 0 else client.generation
        error = self.driver.commit(client.member_id, generation, instance_id=client.instance_id)
        group = self.driver.group
        if not error and generation >= 0:
            assert group is not None
            assert client.member_id in group.members
            assert generation == group.generation

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.driver.leave(LeavingMember(client.member_id, client.instance_id))
        self.deliver()
        client.forget()

    @rule(number=st.integers(0, CLIENTS - 1))
    def client_restarts(self, number: int) -> None:
        self.clients[number].forget()

    # what happens around them

    @rule(ms=st.sampled_from([0, 1, 1_500, 3_000, 7_000, 30_000, 400_000]))
    def time_passes(self, ms: int) -> None:
        self.driver.advance(ms)
        self.deliver()

    @rule()
    def broker_restarts(self) -> None:
        before = self.driver.group
        self.driver.store_is_down = False
        self.driver.restart()
        after = self.driver.group
        if before is not None and before.state in SETTLED:
            assert after is not None
            assert snapshot.take(after) == snapshot.take(before)
        for client in self.clients:
            client.join_token = client.sync_token = None

    @rule(down=st.booleans())
    def store_fails_or_recovers(self, down: bool) -> None:
        self.driver.store_is_down = down

    @rule()
    def delete(self) -> None:
        if not self.driver.delete():
            self.driver.group = None

    @precondition(lambda self: self.driver.state is ClassicState.EMPTY)
    @rule(last_commit_ago_ms=st.sampled_from([None, 0]))
    def retention_is_checked(self, last_commit_ago_ms: int | None) -> None:
        last_commit_ms = None if last_commit_ago_ms is None else self.driver.now_ms
        self.driver.check_retention(last_commit_ms)
        assert self.driver.state is ClassicState.EMPTY, "nobody has been gone for a week"

    # what answers mean to clients

    def deliver(self) -> None:
        for client in self.clients:
            if client.join_token in self.driver.answers:
                self._learn_from_join(client, self.driver.joined(client.join_token))
                client.join_token = None
            if client.sync_token in self.driver.answers:
                self._learn_from_sync(client, self.driver.synced(client.sync_token))
                client.sync_token = None

    def _learn_from_join(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id, client.generation = answer.member_id, answer.generation
            is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            client.leads = tuple(m.member_id for m in answer.members) if is_leader else ()
        elif answer.error is not ErrorCode.REBALANCE_IN_PROGRESS:
            client.forget()

    def _learn_from_sync(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()

    # what always holds

    def check_decision(self, decision: ClassicDecision) -> None:
        if decision.tombstone:
            self.highest_generation = 0
        group = decision.state
        if group is None or group.state is ClassicState.DEAD:
            return
        assert group.generation >= self.highest_generation, "a generation went back"
        self.highest_generation = group.generation
        for _, answer in decision.replies:
            if isinstance(answer, JoinAnswer) and not answer.error:
                self._check_join_was_stored(answer)
            if isinstance(answer, SyncAnswer) and not answer.error:
                self._check_assignment(group, answer)

    def _check_join_was_stored(self, answer: JoinAnswer) -> None:
        assert self.driver.stored is not None
        stored = parse(self.driver.stored)
        assert stored.generation == answer.generation
        assert answer.member_id in {m.member_id for m in stored.members}

    def _check_assignment(self, group: Group, answer: SyncAnswer) -> None:
        """Assignments name their owner, so the answer itself tells whose it is."""
        assert self.driver.stored is not None
        stored = parse(self.driver.stored)
        assert stored.state is ClassicState.STABLE
        assert stored.generation == group.generation
        assert answer.assignment in {m.assignment for m in stored.members}
        owners = [m for m in stored.members if m.assignment and m.assignment == answer.assignment]
        assert len(owners) <= 1
        assert group.identity is not None
        for member in owners:
            owner = member.instance_id or member.member_id
            for partition in member.assignment.decode().split(":")[1].split(","):
                key = (group.identity.id, group.generation, int(partition))
                assert self.owners.setdefault(key, owner) == owner, f"two owners of {key}"

    @invariant()
    def every_owed_answer_is_parked_in_the_group(self) -> None:
        group = self.driver.group
        parked = [*group.joins.values(), *group.syncs.values()] if group is not None else []
        assert sorted(self.driver.owed) == sorted(p.token for p in parked if isinstance(p.token, int))

    @invariant()
    def timers_are_those_that_the_state_calls_for(self) -> None:
        armed = self.driver.timers.armed()
        group = self.driver.group
        if group is None:
            assert not armed
            return
        sessions = {member_id for kind, member_id in armed if kind is TimerKind.SESSION}
        assert {m for m in group.members if not group.is_parked(m)} <= sessions <= set(group.members)
        assert {member_id for kind, member_id in armed if kind is TimerKind.PENDING} == group.pending
        assert (JOIN_TIMER in armed) == (group.state is ClassicState.PREPARING_REBALANCE)
        assert (SYNC_TIMER in armed) == (group.state in SETTLED and bool(group.unsynced))

    @invariant()
    def load_of_dump_is_the_same_state(self) -> None:
        if self.driver.group is None:
            return
        taken = snapshot.take(self.driver.group)
        packed = {field: snapshot.pack(value) for field, value in snapshot.fields(taken).items()}
        assert parse(packed) == taken
        assert snapshot.take(snapshot.restore(taken)) == taken

    @invariant()
    def what_is_counted_beside_the_members_is_right(self) -> None:
        group = self.driver.group
        if group is None:
            return
        members = group.members.values()
        assert group.instances == {m.instance_id: m.member_id for m in members if m.instance_id}
        offers = [protocol.name for m in members for protocol in m.protocols]
        assert group.support == {name: offers.count(name) for name in set(offers)}
        assert (group.leader in group.members) if group.members else (group.leader is None)
        assert group.joins.keys() <= group.members.keys()
        assert group.unsynced <= group.members.keys()
        assert not group.syncs or group.state is ClassicState.COMPLETING_REBALANCE
        assert not group.joins or group.state is ClassicState.PREPARING_REBALANCE
        assert bool(group.members) or group.state in (ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE)


def _round_robin(members: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for index, member_id in enumerate(members):
        partitions = [str(p) for p in range(PARTITIONS) if p % len(members) == index]
        if partitions:
            yield member_id, f"{member_id}:{','.join(partitions)}".encode()


GroupUnderFire.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyInterleaving = GroupUnderFire.TestCase
