"""Time-outs, on a virtual clock: when they end, what they end, and what renews them."""

import pytest

from headrace.broker.owned.timers import Timers
from headrace.groups.classic.events import LeavingMember
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import JOIN_TIMER, SYNC_TIMER, TimerKey, session_timer
from headrace.groups.settings import GroupSettings
from tests.groups.classic.driver import REBALANCE_MS, SESSION_MS, START_MS, Driver, group_in, rejoin, stable_group

DELAYED = GroupSettings()
NEW_MEMBER_MS = DELAYED.new_member_join_timeout_ms


class TestInitialDelay:
    def test_the_first_member_waits_three_seconds_for_others(self) -> None:
        driver = Driver(DELAYED)
        token = driver.join(driver.new_member_id())
        driver.advance(2_999)
        assert driver.is_parked(token)
        driver.advance(1)
        assert driver.joined(token).generation == 1

    def test_each_joiner_extends_it_to_a_delay_after_its_own_join(self) -> None:
        driver = Driver(DELAYED)
        first = driver.join(version=3)
        driver.advance(2_000)
        second = driver.join(version=3)
        driver.advance(2_999)
        assert driver.is_parked(first)
        driver.advance(1)
        assert driver.joined(first).generation == driver.joined(second).generation == 1

    def test_it_ends_with_the_rebalance_timeout_however_many_come(self) -> None:
        driver = Driver(DELAYED)
        first = driver.join(version=3, rebalance_timeout_ms=10_000)
        for _ in range(9):
            driver.advance(1_000)
            driver.join(version=3)
        driver.advance(999)
        assert driver.is_parked(first)
        driver.advance(1)
        assert driver.joined(first).generation == 1
        assert len(driver.the_group.members) == 10

    def test_zero_completes_at_once(self) -> None:
        driver = Driver()
        assert driver.joined(driver.join(version=3)).generation == 1

    def test_a_group_that_became_empty_waits_again(self) -> None:
        driver = Driver(DELAYED)
        driver.join(version=3)
        driver.advance(3_000)
        (member_id,) = driver.the_group.members
        driver.leave_one(member_id)
        token = driver.join(version=3)
        assert driver.is_parked(token)
        driver.advance(3_000)
        assert driver.joined(token).generation == 3, "becoming Empty was a generation too"

    def test_everybody_leaves_before_it_ends(self) -> None:
        driver = Driver(DELAYED)
        token = driver.join(version=3)
        (member_id,) = driver.the_group.members
        driver.leave_one(member_id)
        assert driver.joined(token).error == 25
        driver.advance(3_000)
        assert driver.is_in(ClassicState.EMPTY)
        assert not driver.timers.armed()


class TestSessions:
    def test_a_silent_member_is_removed_and_the_others_rebalance(self) -> None:
        driver, (leader, follower) = stable_group()
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(leader) == 0
        driver.advance(1)
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)
        assert driver.heartbeat(leader) == 27
        assert driver.heartbeat(follower) == 25
        rejoin(driver, leader)
        assert driver.is_in(ClassicState.COMPLETING_REBALANCE)

    def test_heartbeats_keep_a_member(self) -> None:
        driver, (leader, follower) = stable_group()
        for _ in range(5):
            driver.advance(SESSION_MS - 1)
            assert driver.heartbeat(leader) == 0
            assert driver.heartbeat(follower) == 0

    def test_commits_keep_a_member_of_a_stable_group(self) -> None:
        driver, (leader, follower) = stable_group()
        driver.advance(SESSION_MS - 1)
        assert driver.commit(leader, None) == 0
        assert driver.commit(follower, None) == 0
        driver.advance(SESSION_MS - 1)
        assert driver.is_in(ClassicState.STABLE)

    def test_heartbeats_and_commits_keep_a_member_that_has_yet_to_join_again(self) -> None:
        driver, (leader, follower) = stable_group()
        driver.join(leader)
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(follower) == 27
        driver.advance(SESSION_MS - 1)
        assert driver.commit(follower, None) == 0
        driver.advance(SESSION_MS - 1)
        assert follower in driver.the_group.members

    def test_a_refused_commit_renews_nothing(self) -> None:
        driver, (leader, follower) = stable_group()
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(leader)
        assert driver.commit(follower, 99) == 22
        driver.advance(1)
        assert follower not in driver.the_group.members

    def test_a_parked_member_is_alive_however_long_it_waits(self) -> None:
        driver, (leader, follower) = stable_group()
        token = driver.join(leader)
        for _ in range(5):
            driver.advance(SESSION_MS - 1)
            driver.heartbeat(follower)
        assert driver.is_parked(token)
        driver.join(follower)
        assert driver.joined(token).error == 0

    def test_a_heartbeat_of_a_parked_member_starts_no_session(self) -> None:
        driver, (leader, follower) = stable_group()
        token = driver.join(leader)
        assert driver.heartbeat(leader) == 27
        for _ in range(3):
            driver.heartbeat(follower)
            driver.advance(SESSION_MS - 1)
        assert driver.is_parked(token)

    def test_a_session_starts_anew_when_the_join_is_answered(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        assert driver.timers.armed()[session_timer(follower)] == driver.now_ms + SESSION_MS

    def test_a_session_starts_anew_when_the_sync_is_answered(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        leader = driver.the_group.leader
        assert leader is not None
        driver.sync(follower)
        driver.advance(SESSION_MS - 1)
        driver.sync(leader, assignments={})
        assert driver.timers.armed()[session_timer(follower)] == driver.now_ms + SESSION_MS

    def test_a_group_that_dies_at_once_is_stored_once(self) -> None:
        driver, members = stable_group(5)
        before = driver.stores
        driver.advance(SESSION_MS)
        assert (driver.the_group.state, len(members)) == (ClassicState.EMPTY, 5)
        assert driver.stores == before + 1
        assert not driver.timers.armed()

    def test_a_timer_that_one_of_the_same_moment_ended_does_not_fire(self) -> None:
        driver, (leader, follower) = stable_group()
        generation = driver.the_group.generation
        token = driver.join(leader)
        ends_ms = driver.now_ms + REBALANCE_MS
        while driver.now_ms < ends_ms - SESSION_MS:
            driver.advance(min(SESSION_MS - 1, ends_ms - SESSION_MS - driver.now_ms))
            driver.heartbeat(follower)
        assert driver.timers.armed()[session_timer(follower)] == driver.timers.armed()[JOIN_TIMER] == ends_ms
        driver.advance(SESSION_MS)
        assert driver.joined(token).generation == driver.the_group.generation == generation + 1
        assert list(driver.the_group.members) == [leader]

    def test_the_last_member_fails_and_the_group_is_empty(self) -> None:
        driver, _ = stable_group(1)
        driver.advance(SESSION_MS)
        assert driver.is_in(ClassicState.EMPTY)
        assert driver.the_group.empty_since_ms == driver.now_ms
        assert not driver.timers.armed()

    def test_a_new_member_that_waits_too_long_is_sent_away(self) -> None:
        driver, (leader,) = stable_group(1)
        token = driver.join(version=3, rebalance_timeout_ms=10**7)
        for _ in range(NEW_MEMBER_MS // 5_000):
            assert driver.is_parked(token)
            driver.heartbeat(leader)
            driver.advance(5_000)
        assert driver.joined(token).error == 25
        assert list(driver.the_group.members) == [leader]


class TestRebalanceTimeout:
    def test_dynamic_members_that_miss_the_join_are_removed(self) -> None:
        driver, (leader, follower) = stable_group()
        token = driver.join(leader)
        keep_alive(driver, follower, REBALANCE_MS - 1)
        assert driver.is_parked(token)
        driver.advance(1)
        assert driver.joined(token).generation == driver.generation
        assert list(driver.the_group.members) == [leader]
        assert driver.heartbeat(follower) == 25

    def test_the_longest_of_the_members_counts(self) -> None:
        driver, _ = stable_group(1)
        driver.join(version=3, rebalance_timeout_ms=2 * REBALANCE_MS)
        assert driver.timers.armed()[JOIN_TIMER] == driver.now_ms + 2 * REBALANCE_MS

    def test_version_0_has_none_so_the_session_timeout_counts(self) -> None:
        driver, (leader,) = stable_group(1)
        driver.leave_one(leader)
        driver.join(version=0)
        assert driver.timers.armed()[SYNC_TIMER] == driver.now_ms + SESSION_MS

    def test_members_that_miss_the_sync_are_removed(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        leader = driver.the_group.leader
        assert leader is not None
        driver.sync(leader, assignments={})
        assert driver.is_in(ClassicState.STABLE)
        keep_alive(driver, leader, REBALANCE_MS - 1, follower)
        assert driver.is_in(ClassicState.STABLE)
        driver.advance(1)
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)
        assert list(driver.the_group.members) == [leader]

    def test_a_leader_that_misses_the_sync_is_removed_and_those_who_wait_join_again(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        leader = driver.the_group.leader
        assert leader is not None
        token = driver.sync(follower)
        keep_alive(driver, leader, REBALANCE_MS - 1)
        assert driver.is_parked(token)
        driver.advance(1)
        assert driver.synced(token).error == 27
        assert list(driver.the_group.members) == [follower]
        assert driver.the_group.leader == follower

    def test_the_sync_timer_ends_when_all_have_synced(self) -> None:
        driver, _ = stable_group()
        assert SYNC_TIMER not in driver.timers.armed()


class TestHandedOutIds:
    @pytest.mark.parametrize("session_timeout_ms", [6_000, 45_000])
    def test_an_id_that_nobody_joins_with_is_forgotten_after_its_session_timeout(self, session_timeout_ms: int) -> None:
        driver = Driver()
        member_id = driver.new_member_id(session_timeout_ms)
        driver.advance(session_timeout_ms - 1)
        assert member_id in driver.the_group.pending
        driver.advance(1)
        assert driver.group is None
        assert driver.joined(driver.join(member_id)).error == 25

    def test_a_rebalance_waits_for_it(self) -> None:
        driver, (leader, _) = stable_group()
        driver.new_member_id()
        tokens = [driver.join(leader), driver.join(list(driver.the_group.members)[1])]
        assert all(driver.is_parked(t) for t in tokens)
        driver.advance(SESSION_MS)
        assert [driver.joined(t).error for t in tokens] == [0, 0]

    def test_it_leaves_and_the_rebalance_goes_on(self) -> None:
        driver, (leader, follower) = stable_group()
        pending = driver.new_member_id()
        tokens = [driver.join(leader), driver.join(follower)]
        driver.leave(LeavingMember(pending))
        assert [driver.joined(t).error for t in tokens] == [0, 0]


class TestFailedStore:
    def test_a_timer_whose_decision_was_dropped_is_due_again(self) -> None:
        driver, (leader, _) = stable_group()
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(leader)
        driver.store_is_down = True
        driver.advance(500)
        assert driver.is_in(ClassicState.STABLE)
        driver.store_is_down = False
        driver.advance(0)
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)

    def test_parked_requests_stay_parked_and_the_asking_one_is_refused(self) -> None:
        driver, (leader, follower) = stable_group()
        waiting = driver.join(leader)
        driver.store_is_down = True
        refused = driver.join(follower)
        assert driver.joined(refused).error == 15
        assert driver.is_parked(waiting)
        driver.store_is_down = False
        driver.join(follower)
        assert driver.joined(waiting).error == 0


class TestResume:
    """The coordinator could not answer for a while: nobody is removed for heartbeats and joins that found no one."""

    def test_sessions_start_anew(self) -> None:
        driver, members = stable_group()
        driver.advance(SESSION_MS - 1)
        driver.resume()
        driver.advance(SESSION_MS - 1)
        assert [driver.heartbeat(m) for m in members] == [0, 0]
        assert driver.is_in(ClassicState.STABLE)

    def test_the_time_to_join_again_starts_anew(self) -> None:
        driver, (leader, _) = stable_group()
        driver.join(leader)
        driver.advance(1)
        driver.resume()
        assert driver.timers.armed()[JOIN_TIMER] == driver.now_ms + REBALANCE_MS

    def test_the_time_to_sync_starts_anew(self) -> None:
        driver, _ = group_in(ClassicState.COMPLETING_REBALANCE)
        driver.advance(1)
        driver.resume()
        assert driver.timers.armed()[SYNC_TIMER] == driver.now_ms + REBALANCE_MS

    def test_a_parked_member_has_no_session_to_start(self) -> None:
        driver, (leader, _) = stable_group()
        driver.join(leader)
        driver.resume()
        assert session_timer(leader) not in driver.timers.armed()

    def test_it_stores_and_answers_nothing(self) -> None:
        driver, _ = stable_group()
        stores = driver.stores
        driver.resume()
        assert driver.stores == stores


def test_wake_up_is_never_after_the_earliest_deadline() -> None:
    timers: Timers[TimerKey] = Timers()
    assert timers.wake_ms() is None
    timers.adopt({JOIN_TIMER: START_MS + 10, SYNC_TIMER: START_MS + 20})
    assert timers.wake_ms() == START_MS + 10
    timers.adopt({JOIN_TIMER: START_MS + 30})
    assert timers.due(START_MS + 10) == []
    assert timers.wake_ms() == START_MS + 20
    timers.adopt({JOIN_TIMER: None})
    assert timers.due(START_MS + 40) == [SYNC_TIMER]
    timers.adopt({SYNC_TIMER: None})
    assert timers.wake_ms() is None


def keep_alive(driver: Driver, member_id: str, ms: int, *others: str) -> None:
    """Let time pass while these members heartbeat."""
    for _ in range(ms // 5_000):
        driver.advance(5_000)
        for alive in (member_id, *others):
            driver.heartbeat(alive)
    driver.advance(ms % 5_000)
