"""Every cell of the request table: what each request is answered in each state, in each of its versions."""

import pytest

from headrace.groups.classic.answers import JoinAnswer, SyncAnswer
from headrace.groups.classic.describe import describe
from headrace.groups.classic.events import LeavingMember
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.table import ClassicState
from headrace.wire.errors import ErrorCode
from tests.groups.classic.driver import (
    COMMIT_VERSIONS,
    DELETE_VERSIONS,
    DESCRIBE_VERSIONS,
    GROUP_ID,
    HEARTBEAT_VERSIONS,
    JOIN_VERSIONS,
    LEAVE_VERSIONS,
    SYNC_VERSIONS,
    Driver,
    group_in,
    stable_group,
)

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicState
NO_GROUP = None
CHANGED = (Protocol("range", b"another subscription"),)

PARK = "park"
Cell = int | str


def outcome(driver: Driver, token: int, kind: type[JoinAnswer] | type[SyncAnswer]) -> Cell:
    answer = driver.take(token, kind)
    return PARK if answer is None else int(answer.error)


class TestJoinWithoutMemberId:
    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    @pytest.mark.parametrize("state", [NO_GROUP, EMPTY, PREPARING, COMPLETING, STABLE])
    def test_a_dynamic_member_is_given_an_id_first_from_version_4(
        self, version: int, state: ClassicState | None
    ) -> None:
        driver, _ = group_in(state)
        generation = driver.generation
        answer = driver.take(driver.join(version=version), JoinAnswer)
        if version >= 4:
            assert answer is not None
            assert answer.error == 79
            assert answer.member_id in driver.the_group.pending
            assert driver.state is (state or EMPTY)
        elif state in (NO_GROUP, EMPTY):
            assert answer is not None, "without an initial delay the first generation begins at once"
            assert (answer.error, answer.generation) == (0, generation + 1)
        else:
            assert answer is None
            assert driver.state is PREPARING

    @pytest.mark.parametrize("version", range(5, 10))
    @pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
    def test_a_static_member_needs_no_id_first(self, version: int, state: ClassicState) -> None:
        driver, _ = group_in(state)
        assert outcome(driver, driver.join(version=version, instance_id="shop-1"), JoinAnswer) == PARK
        assert driver.state is PREPARING

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_a_dead_group_is_not_available(self, version: int) -> None:
        driver, _ = group_in(DEAD)
        assert outcome(driver, driver.join(version=version), JoinAnswer) == 15

    def test_waiting_syncs_are_sent_back_when_somebody_joins(self) -> None:
        driver, follower = group_in(COMPLETING)
        waiting = driver.sync(follower)
        assert driver.is_parked(waiting)
        driver.join(version=3)
        assert driver.synced(waiting).error == 27


class TestJoinWithMemberId:
    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    @pytest.mark.parametrize(
        ("state", "unchanged", "changed"),
        [
            (NO_GROUP, 25, 25),
            (EMPTY, 25, 25),
            (PREPARING, 0, 0),  # the follower was the last that was missing
            (COMPLETING, 0, PARK),
            (STABLE, 0, PARK),
            (DEAD, 15, 15),
        ],
    )
    def test_a_known_follower(self, version: int, state: ClassicState | None, unchanged: Cell, changed: Cell) -> None:
        driver, follower = group_in(state)
        assert outcome(driver, driver.join(follower, version=version), JoinAnswer) == unchanged
        driver, follower = group_in(state)
        token = driver.join(follower, version=version, protocols=CHANGED)
        assert outcome(driver, token, JoinAnswer) == changed

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    @pytest.mark.parametrize("state", [COMPLETING, STABLE])
    def test_an_unchanged_follower_gets_the_current_generation(self, version: int, state: ClassicState) -> None:
        driver, follower = group_in(state)
        generation = driver.generation
        answer = driver.joined(driver.join(follower, version=version))
        assert (answer.generation, answer.member_id, answer.members) == (generation, follower, ())
        assert answer.leader == driver.the_group.leader
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        assert driver.state is state

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_an_unchanged_leader_gets_the_members_again_while_the_rebalance_completes(self, version: int) -> None:
        driver, _ = group_in(COMPLETING)
        leader = driver.the_group.leader
        assert leader is not None
        answer = driver.joined(driver.join(leader, version=version))
        assert {m.member_id for m in answer.members} == set(driver.the_group.members)
        assert {m.metadata for m in answer.members} == {b"range-metadata"}
        assert driver.state is COMPLETING

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_the_leader_of_a_stable_group_asks_for_a_rebalance(self, version: int) -> None:
        driver, (leader, follower) = stable_group()
        token = driver.join(leader, version=version)
        assert driver.is_parked(token)
        assert driver.state is PREPARING
        driver.join(follower)
        assert driver.joined(token).error == 0

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_a_member_that_joins_while_others_are_missing_is_parked(self, version: int) -> None:
        driver, (leader, second, _) = stable_group(3)
        driver.join(leader)
        assert outcome(driver, driver.join(second, version=version), JoinAnswer) == PARK

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_refusals_carry_the_member_id_and_no_generation(self, version: int) -> None:
        driver, _ = group_in(STABLE)
        answer = driver.joined(driver.join("stranger", version=version))
        assert answer == JoinAnswer(
            error=ErrorCode.UNKNOWN_MEMBER_ID,
            member_id="stranger",
            generation=-1,
            protocol_name=None if version >= 7 else "",
        )


class TestSync:
    @pytest.mark.parametrize("version", SYNC_VERSIONS)
    @pytest.mark.parametrize(
        ("state", "expected"),
        [(NO_GROUP, 25), (EMPTY, 25), (PREPARING, 27), (COMPLETING, PARK), (STABLE, 0), (DEAD, 15)],
    )
    def test_a_follower(self, version: int, state: ClassicState | None, expected: Cell) -> None:
        driver, follower = group_in(state)
        assert outcome(driver, driver.sync(follower, version=version), SyncAnswer) == expected

    @pytest.mark.parametrize("version", SYNC_VERSIONS)
    def test_the_leaders_is_stored_and_frees_all(self, version: int) -> None:
        driver, follower = group_in(COMPLETING)
        leader = driver.the_group.leader
        assert leader is not None
        waiting = driver.sync(follower, version=version)
        stores = driver.stores
        own = driver.sync(leader, version=version, assignments={leader: b"L", follower: b"F", "other": b"X"})
        assert driver.stores == stores + 1
        assert driver.state is STABLE
        assert driver.synced(own).assignment == b"L"
        assert driver.synced(waiting) == SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"F")

    @pytest.mark.parametrize("version", SYNC_VERSIONS)
    def test_a_stable_member_gets_its_own_assignment(self, version: int) -> None:
        driver, follower = group_in(STABLE)
        assert driver.synced(driver.sync(follower, version=version)).assignment == follower.encode()

    def test_whom_the_leader_forgot_gets_an_empty_assignment(self) -> None:
        driver, follower = group_in(COMPLETING)
        leader = driver.the_group.leader
        assert leader is not None
        waiting = driver.sync(follower)
        driver.sync(leader, assignments={leader: b"everything"})
        assert driver.synced(waiting) == SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"")


class TestHeartbeat:
    @pytest.mark.parametrize("version", HEARTBEAT_VERSIONS)
    @pytest.mark.parametrize(
        ("state", "expected"),
        [(NO_GROUP, 25), (EMPTY, 25), (PREPARING, 27), (COMPLETING, 0), (STABLE, 0), (DEAD, 15)],
    )
    def test_a_member(self, version: int, state: ClassicState | None, expected: int) -> None:
        driver, follower = group_in(state)
        assert driver.heartbeat(follower, version=version) == expected
        assert driver.state is state


class TestLeave:
    @pytest.mark.parametrize("version", LEAVE_VERSIONS)
    @pytest.mark.parametrize(
        ("state", "expected", "after"),
        [
            (NO_GROUP, 25, NO_GROUP),
            (EMPTY, 25, EMPTY),
            (PREPARING, 0, COMPLETING),  # the leader had joined: nobody is missing now
            (COMPLETING, 0, PREPARING),
            (STABLE, 0, PREPARING),
            (DEAD, 15, DEAD),
        ],
    )
    def test_one_member(
        self, version: int, state: ClassicState | None, expected: int, after: ClassicState | None
    ) -> None:
        driver, follower = group_in(state)
        answer = driver.leave(LeavingMember(follower), version=version)
        assert driver.state is after
        if state is DEAD or version <= 2:
            assert (answer.error, answer.members) == (expected, ())
        else:
            assert answer.error == 0
            assert [(row.member_id, row.error) for row in answer.members] == [(follower, expected)]

    def test_several_members_each_get_their_own_row(self) -> None:
        driver, (leader, second, third) = stable_group(3)
        answer = driver.leave(
            LeavingMember(second), LeavingMember("stranger"), LeavingMember(second), LeavingMember(third)
        )
        assert [int(row.error) for row in answer.members] == [0, 25, 25, 0]
        assert list(driver.the_group.members) == [leader]
        assert driver.state is PREPARING

    def test_nobody_known_leaves_and_nothing_changes(self) -> None:
        driver, _ = group_in(STABLE)
        stores = driver.stores
        assert driver.leave_one("stranger") == 25
        assert (driver.state, driver.stores) == (STABLE, stores)

    def test_a_handed_out_id_that_leaves_disturbs_nobody(self) -> None:
        driver, _ = group_in(STABLE)
        member_id = driver.new_member_id()
        assert driver.leave_one(member_id) == 0
        assert driver.state is STABLE
        assert not driver.the_group.pending


class TestCommit:
    @pytest.mark.parametrize("version", range(1, 10))
    @pytest.mark.parametrize(
        ("state", "expected"),
        [(EMPTY, 25), (PREPARING, 0), (COMPLETING, 27), (STABLE, 0), (DEAD, 15)],
    )
    def test_a_member_with_its_generation(self, version: int, state: ClassicState, expected: int) -> None:
        driver, follower = group_in(state)
        generation = max(driver.generation, 1)
        assert driver.commit(follower, generation, version=version) == expected

    @pytest.mark.parametrize("version", range(1, 10))
    def test_a_generation_of_a_group_that_does_not_exist(self, version: int) -> None:
        driver = Driver()
        assert driver.commit("member", 1, version=version) == (69 if version >= 9 else 22)
        assert driver.group is None

    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    @pytest.mark.parametrize(
        ("state", "expected"),
        [(NO_GROUP, 0), (EMPTY, 0), (PREPARING, 25), (COMPLETING, 25), (STABLE, 25), (DEAD, 15)],
    )
    def test_without_member_and_generation(self, version: int, state: ClassicState | None, expected: int) -> None:
        driver, _ = group_in(state)
        assert driver.commit(version=version) == expected

    def test_the_first_one_makes_a_simple_group_which_is_stored(self) -> None:
        driver = Driver()
        assert driver.commit() == 0
        assert driver.state is EMPTY
        assert driver.stored is not None
        assert driver.the_group.identity is None, "nobody joined yet"

    def test_the_empty_group_id_is_allowed(self) -> None:
        assert Driver().commit(group_id="") == 0


class TestOffsetDelete:
    @pytest.mark.parametrize(
        ("state", "expected"),
        [(NO_GROUP, 69), (EMPTY, 0), (PREPARING, 68), (COMPLETING, 68), (STABLE, 68), (DEAD, 69)],
    )
    def test_a_group_of_another_type(self, state: ClassicState | None, expected: int) -> None:
        driver, _ = group_in(state, protocol_type="connect")
        assert driver.offset_delete("a").error == expected

    @pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
    def test_consumers_refuse_topics_that_they_read(self, state: ClassicState) -> None:
        subscription = b"\x00\x01\x00\x00\x00\x01\x00\x04read\xff\xff\xff\xff"
        driver, _ = group_in(state, protocols=(Protocol("range", subscription),))
        answer = driver.offset_delete("read", "other")
        assert (int(answer.error), set(answer.subscribed)) == (0, {"read"})

    @pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
    def test_consumers_whose_metadata_nobody_understands_refuse_all(self, state: ClassicState) -> None:
        driver, _ = group_in(state)
        answer = driver.offset_delete("read", "other")
        assert (int(answer.error), set(answer.subscribed)) == (0, {"read", "other"})


class TestDelete:
    @pytest.mark.parametrize("version", DELETE_VERSIONS)
    @pytest.mark.parametrize(
        ("state", "expected"),
        [(NO_GROUP, 69), (EMPTY, 0), (PREPARING, 68), (COMPLETING, 68), (STABLE, 68), (DEAD, 69)],
    )
    def test_in_each_state(self, version: int, state: ClassicState | None, expected: int) -> None:
        driver, _ = group_in(state)
        assert driver.delete(version) == expected
        if state is EMPTY:
            assert driver.state is DEAD
            assert driver.stored is None


class TestDescribe:
    @pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
    @pytest.mark.parametrize("state", [NO_GROUP, *ClassicState])
    def test_in_each_state(self, version: int, state: ClassicState | None) -> None:
        driver, _ = group_in(state)
        described = describe(driver.group, GROUP_ID, version)
        assert described.state == (state.value if state else "Dead")
        assert described.error == (69 if state is NO_GROUP and version >= 6 else 0)
