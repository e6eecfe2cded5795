"""Static membership (KIP-345): an instance that comes back keeps its place, and its old self is fenced."""

import pytest

from headrace.groups.classic.answers import JoinAnswer
from headrace.groups.classic.events import LeavingMember
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import session_timer
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode
from tests.groups.classic.driver import REBALANCE_MS, SESSION_MS, Driver

STATIC_VERSIONS = range(5, 10)
BOTH = (Protocol("sticky", b"s"), Protocol("range", b"r"))
RANGE_FIRST = (Protocol("range", b"r"), Protocol("sticky", b"s"))


def static_group(
    *instances: str, protocols: tuple[Protocol, ...] = BOTH, settings: GroupSettings | None = None
) -> tuple[Driver, list[str]]:
    """A Stable group of static members, the leader first."""
    driver = Driver(settings or GroupSettings(initial_rebalance_delay_ms=0), protocols=protocols)
    for instance_id in instances:
        driver.join(instance_id=instance_id)
        for member_id in list(driver.the_group.members):
            if driver.is_in(ClassicState.PREPARING_REBALANCE):
                driver.join(member_id, instance_id=driver.the_group.members[member_id].instance_id)
    members = list(driver.the_group.members)
    driver.sync_all(members[0])
    return driver, members


class TestReplacementInAStableGroup:
    @pytest.mark.parametrize("version", STATIC_VERSIONS)
    def test_a_follower_gets_a_new_id_and_its_old_assignment_without_a_rebalance(self, version: int) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        generation, stores = driver.generation, driver.stores
        answer = driver.joined(driver.join(instance_id="shop-2", version=version))
        assert answer == JoinAnswer(
            generation=generation,
            protocol_type="consumer",
            protocol_name="sticky",
            leader=leader,
            member_id=answer.member_id,
        )
        assert answer.member_id not in (leader, follower)
        assert driver.is_in(ClassicState.STABLE)
        assert driver.stores == stores + 1
        own = driver.synced(driver.sync(answer.member_id, instance_id="shop-2"))
        assert own.assignment == follower.encode()

    @pytest.mark.parametrize("version", STATIC_VERSIONS)
    def test_a_leader_must_not_assign_again(self, version: int) -> None:
        """From version 9 it is told so; before, it is told that somebody else leads."""
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        answer = driver.joined(driver.join(instance_id="shop-1", version=version))
        assert driver.the_group.leader == answer.member_id
        if version >= 9:
            assert answer.skip_assignment
            assert answer.leader == answer.member_id
            assert {m.member_id for m in answer.members} == {answer.member_id, follower}
            assert {m.instance_id for m in answer.members} == {"shop-1", "shop-2"}
        else:
            assert not answer.skip_assignment
            assert answer.leader == leader
            assert answer.members == ()

    def test_the_old_id_is_fenced_everywhere(self) -> None:
        driver, (_, old) = static_group("shop-1", "shop-2")
        driver.join(instance_id="shop-2")
        assert driver.heartbeat(old, instance_id="shop-2") == 82
        assert driver.commit(old, None, instance_id="shop-2") == 82
        assert driver.synced(driver.sync(old, instance_id="shop-2")).error == 82
        assert driver.joined(driver.join(old, instance_id="shop-2")).error == 82
        assert driver.leave(LeavingMember(old, "shop-2")).members[0].error == 82
        assert driver.heartbeat(old) == 25

    def test_after_a_restart_the_new_one_is_not_fenced(self) -> None:
        driver, (_, old) = static_group("shop-1", "shop-2")
        new = driver.joined(driver.join(instance_id="shop-2")).member_id
        driver.restart()
        assert driver.heartbeat(new, instance_id="shop-2") == 0
        assert driver.heartbeat(old, instance_id="shop-2") == 82

    def test_a_replacement_that_cannot_be_stored_did_not_happen(self) -> None:
        driver, (_, old) = static_group("shop-1", "shop-2")
        driver.store_is_down = True
        assert driver.joined(driver.join(instance_id="shop-2")).error == 15
        assert driver.heartbeat(old, instance_id="shop-2") == 0

    def test_a_change_of_the_selected_protocol_needs_a_rebalance(self) -> None:
        driver, _ = static_group("shop-1")
        assert driver.the_group.protocol_name == "sticky"
        answer = driver.joined(driver.join(instance_id="shop-1", protocols=RANGE_FIRST))
        assert answer.protocol_name == "range"
        assert driver.is_in(ClassicState.COMPLETING_REBALANCE)

    def test_the_session_of_the_new_id_runs_and_the_old_one_ends(self) -> None:
        driver, (_, old) = static_group("shop-1", "shop-2")
        new = driver.joined(driver.join(instance_id="shop-2")).member_id
        assert session_timer(old) not in driver.timers.armed()
        assert driver.timers.armed()[session_timer(new)] == driver.now_ms + SESSION_MS

    def test_it_does_not_make_a_full_group_larger(self) -> None:
        full = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)
        driver, _ = static_group("shop-1", "shop-2", settings=full)
        assert driver.joined(driver.join(instance_id="shop-2")).error == 0
        assert driver.joined(driver.join(instance_id="shop-3")).error == 81


class TestReplacementDuringARebalance:
    def test_while_it_completes_everybody_joins_again(self) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        driver.join(leader, instance_id="shop-1")
        driver.join(follower, instance_id="shop-2")
        assert driver.is_in(ClassicState.COMPLETING_REBALANCE)
        waiting = driver.sync(follower, instance_id="shop-2")
        token = driver.join(instance_id="shop-2")
        assert driver.synced(waiting).error == 82
        assert driver.is_parked(token)
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)

    def test_while_it_is_prepared_the_parked_one_is_fenced(self) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        driver.join(version=3)
        old = driver.join(follower, instance_id="shop-2")
        new = driver.join(instance_id="shop-2")
        assert driver.joined(old).error == 82
        assert driver.is_parked(new)
        driver.join(leader, instance_id="shop-1")
        assert driver.joined(new).error == 0


class TestMissedTimeouts:
    def test_a_static_member_that_misses_the_join_stays(self) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        token = driver.join(leader, instance_id="shop-1")
        for _ in range(REBALANCE_MS // 5_000):
            driver.heartbeat(follower, instance_id="shop-2")
            driver.advance(5_000)
        answer = driver.joined(token)
        assert {m.member_id for m in answer.members} == {leader, follower}
        assert driver.heartbeat(follower, answer.generation, instance_id="shop-2") == 0

    def test_its_session_removes_it_all_the_same(self) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(leader, instance_id="shop-1")
        driver.advance(1)
        assert follower not in driver.the_group.members
        assert "shop-2" not in driver.the_group.instances

    def test_when_no_static_member_comes_the_rebalance_waits_on(self) -> None:
        driver, members = static_group("shop-1", "shop-2")
        newcomer = driver.join(version=3)
        new_id = next(m for m in driver.the_group.members if m not in members)
        driver.leave_one(new_id)
        assert driver.joined(newcomer).error == 25
        for _ in range(REBALANCE_MS // 5_000 + 1):
            for member_id in members:
                driver.heartbeat(member_id)
            driver.advance(5_000)
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)
        assert list(driver.the_group.members) == members

    def test_another_member_leads_when_a_static_leader_misses_the_join(self) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        newcomer = driver.join(version=3)
        token = driver.join(follower, instance_id="shop-2")
        for _ in range(REBALANCE_MS // 5_000):
            driver.heartbeat(leader)
            driver.advance(5_000)
        assert driver.joined(token).leader == driver.joined(newcomer).leader == follower
        assert leader in driver.the_group.members

    def test_a_replacement_of_one_that_had_not_synced_has_to_sync_in_its_place(self) -> None:
        driver, (leader, follower) = static_group("shop-1", "shop-2")
        driver.join(leader, instance_id="shop-1")
        driver.join(follower, instance_id="shop-2")
        driver.sync(leader, assignments={})
        new = driver.joined(driver.join(instance_id="shop-2")).member_id
        for _ in range(REBALANCE_MS // 5_000):
            assert driver.heartbeat(leader) == driver.heartbeat(new) == 0
            driver.advance(5_000)
        assert list(driver.the_group.members) == [leader]


class TestLeaving:
    def test_by_instance_id_alone_as_an_administrator(self) -> None:
        driver, (leader, _) = static_group("shop-1", "shop-2")
        answer = driver.leave(LeavingMember("", "shop-2"))
        assert [(r.member_id, r.instance_id, r.error) for r in answer.members] == [("", "shop-2", ErrorCode.NONE)]
        assert list(driver.the_group.members) == [leader]

    def test_an_instance_that_left_comes_back_as_a_new_member(self) -> None:
        driver, (_, follower) = static_group("shop-1", "shop-2")
        driver.leave(LeavingMember(follower, "shop-2"))
        token = driver.join(instance_id="shop-2")
        assert driver.is_parked(token)
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)


def test_static_and_dynamic_members_share_a_group() -> None:
    driver, (leader,) = static_group("shop-1")
    dynamic = driver.join(driver.new_member_id())
    static = driver.join(leader, instance_id="shop-1")
    assert driver.joined(dynamic).generation == driver.joined(static).generation
    assert [m.instance_id for m in driver.joined(static).members] == ["shop-1", None]


def test_rejoining_with_its_id_changes_nothing_for_an_unchanged_static_follower() -> None:
    driver, (_, follower) = static_group("shop-1", "shop-2")
    answer = driver.joined(driver.join(follower, instance_id="shop-2"))
    assert (answer.error, answer.generation, answer.member_id) == (0, driver.generation, follower)
    assert driver.is_in(ClassicState.STABLE)
