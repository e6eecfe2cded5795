"""What a rebalance decides: the protocol, the leader, who is let in; and that many members are no problem."""

import pytest

from headrace.groups.classic.answers import JoinAnswer
from headrace.groups.classic.events import Heartbeat, LeavingMember
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.table import ClassicState
from headrace.groups.settings import GroupSettings
from tests.groups.classic.driver import GROUP_ID, SESSION_MS, Driver, rejoin, stable_group

RANGE = Protocol("range", b"range")
STICKY = Protocol("sticky", b"sticky")
COOPERATIVE = Protocol("cooperative-sticky", b"cooperative")


def vote_of(*ballots: tuple[Protocol, ...]) -> str | None:
    driver = Driver(GroupSettings())
    for ballot in ballots:
        driver.join(version=3, protocols=ballot)
    driver.advance(10_000)
    return driver.the_group.protocol_name


class TestTheVote:
    @pytest.mark.parametrize(
        ("ballots", "selected"),
        [
            ([(RANGE,)], "range"),
            ([(STICKY, RANGE), (RANGE, STICKY), (RANGE, STICKY)], "range"),
            ([(STICKY, RANGE), (STICKY, RANGE), (RANGE, STICKY)], "sticky"),
            ([(STICKY, RANGE), (RANGE,)], "range"),
            ([(COOPERATIVE, STICKY, RANGE), (STICKY, RANGE), (STICKY, RANGE)], "sticky"),
            ([(STICKY, RANGE), (RANGE, STICKY)], "sticky"),
        ],
    )
    def test_first_common_choice_of_each_member_and_most_votes_win(
        self, ballots: list[tuple[Protocol, ...]], selected: str
    ) -> None:
        assert vote_of(*ballots) == selected

    def test_without_a_common_protocol_the_later_member_is_refused(self) -> None:
        driver = Driver(GroupSettings())
        driver.join(version=3, protocols=(RANGE, STICKY))
        driver.join(version=3, protocols=(RANGE,))
        assert driver.joined(driver.join(version=3, protocols=(STICKY,))).error == 23

    def test_the_leader_sees_the_metadata_of_the_selected_protocol(self) -> None:
        driver = Driver(GroupSettings())
        token = driver.join(version=3, protocols=(STICKY, RANGE))
        driver.join(version=3, protocols=(RANGE,))
        driver.advance(10_000)
        assert {m.metadata for m in driver.joined(token).members} == {b"range"}

    def test_a_name_listed_twice_counts_once(self) -> None:
        driver = Driver(GroupSettings())
        driver.join(version=3, protocols=(RANGE, Protocol("range", b"again")))
        driver.join(version=3, protocols=(STICKY, RANGE))
        driver.advance(10_000)
        assert driver.the_group.protocol_name == "range"
        assert driver.the_group.support == {"range": 2, "sticky": 1}

    @pytest.mark.parametrize("protocol_type", ["consumer", "connect", "stream", "sr"])
    def test_any_protocol_type_with_opaque_metadata(self, protocol_type: str) -> None:
        opaque = (Protocol("v1", b"\xff\x00\xfe"),)
        driver, members = stable_group(2, protocol_type=protocol_type, protocols=opaque)
        assert driver.the_group.protocol_type == protocol_type
        assert driver.synced(driver.sync(members[1])).protocol_type == protocol_type

    def test_a_group_that_became_empty_may_change_its_type(self) -> None:
        driver, (member_id,) = stable_group(1)
        driver.leave_one(member_id)
        assert driver.joined(driver.join(version=3, protocol_type="connect")).protocol_type == "connect"


class TestTheLeader:
    def test_the_first_member_leads_and_only_it_learns_the_members(self) -> None:
        driver = Driver(GroupSettings())
        tokens = [driver.join(version=3) for _ in range(3)]
        driver.advance(10_000)
        answers = [driver.joined(t) for t in tokens]
        assert {a.leader for a in answers} == {answers[0].member_id}
        assert [len(a.members) for a in answers] == [3, 0, 0]

    def test_when_it_leaves_the_oldest_of_the_others_leads(self) -> None:
        driver, (leader, second, third) = stable_group(3)
        driver.leave_one(leader)
        last, first = driver.join(third), driver.join(second)
        assert driver.joined(last).leader == second
        assert len(driver.joined(first).members) == 2

    def test_when_its_session_ends_another_leads(self) -> None:
        driver, (_, second) = stable_group()
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(second)
        driver.advance(1)
        assert driver.joined(driver.join(second)).leader == second

    def test_when_it_misses_the_join_another_leads(self) -> None:
        driver, (leader, second) = stable_group()
        token = driver.join(second, protocols=(Protocol("range", b"changed"),))
        for _ in range(12):
            driver.heartbeat(leader)
            driver.advance(5_000)
        assert driver.joined(token).leader == second

    def test_it_keeps_the_lead_over_generations(self) -> None:
        driver, (leader, second) = stable_group()
        rejoin(driver, second, leader)
        assert driver.the_group.leader == leader


class TestGroupSize:
    def test_newcomers_to_a_full_group_are_refused(self) -> None:
        driver, members = stable_group(2, GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
        answer = driver.joined(driver.join(version=7))
        assert answer == JoinAnswer(error=answer.error, member_id="")
        assert answer.error == 81
        assert list(driver.the_group.members) == members

    def test_while_members_join_those_who_came_are_counted(self) -> None:
        driver = Driver(GroupSettings(max_size=2))
        tokens = [driver.join(version=3) for _ in range(3)]
        assert driver.joined(tokens[2]).error == 81
        driver.advance(10_000)
        assert [driver.joined(t).error for t in tokens[:2]] == [0, 0]

    def test_a_lowered_limit_makes_the_loaded_group_rebalance_and_the_last_ones_go(self) -> None:
        driver, members = stable_group(3)
        smaller = Driver(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
        smaller.stored, smaller.now_ms = driver.stored, driver.now_ms
        smaller.restart()
        assert smaller.is_in(ClassicState.PREPARING_REBALANCE)
        tokens = [smaller.join(member_id) for member_id in members]
        assert [smaller.joined(t).error for t in tokens] == [0, 0, 81]
        assert list(smaller.the_group.members) == members[:2]


class TestRepeatedRequests:
    def test_a_join_sent_again_answers_the_first_one_and_parks_the_second(self) -> None:
        driver, (leader, follower) = stable_group()
        first = driver.join(leader)
        second = driver.join(leader)
        assert driver.joined(first).error == 27
        assert driver.is_parked(second)
        driver.join(follower)
        assert driver.joined(second).error == 0

    def test_a_sync_sent_again_answers_the_first_one_and_parks_the_second(self) -> None:
        driver, (leader, follower) = stable_group()
        rejoin(driver, follower, leader)
        first, second = driver.sync(follower), driver.sync(follower)
        assert driver.synced(first).error == 27
        assert driver.is_parked(second)

    def test_a_member_that_leaves_gets_its_parked_sync_answered(self) -> None:
        driver, (leader, follower) = stable_group()
        rejoin(driver, follower, leader)
        token = driver.sync(follower)
        driver.leave_one(follower)
        assert driver.synced(token).error == 25


class TestManyMembers:
    def test_two_hundred_form_one_generation_and_survive_a_leave(self) -> None:
        driver = Driver(GroupSettings())
        ids = [driver.new_member_id() for _ in range(200)]
        tokens = [driver.join(member_id) for member_id in ids]
        driver.advance(6_000)
        assert {driver.joined(t).generation for t in tokens} == {1}
        assert len(driver.joined(tokens[0]).members) == 200
        driver.sync_all(ids[0])
        driver.leave(LeavingMember(ids[7]))
        tokens = [driver.join(member_id) for member_id in ids if member_id != ids[7]]
        assert {driver.joined(t).generation for t in tokens} == {2}

    def test_a_heartbeat_copies_and_stores_nothing(self) -> None:
        driver, (leader, _) = stable_group()
        beat = Heartbeat(token=0, group_id=GROUP_ID, version=4, member_id=leader, generation=driver.generation)
        decision = driver.machine.decide(driver.group, beat, driver.now_ms)
        assert decision.state is driver.group
        assert decision.store is None
        assert len(decision.timers) == 1


def test_a_rebalance_that_changes_no_assignment_stores_no_member_again() -> None:
    driver, (leader, follower) = stable_group()
    assert driver.stored is not None
    before = dict(driver.stored)
    rejoin(driver, follower, leader)
    driver.sync_all(leader)
    changed = {field for field, raw in driver.stored.items() if before[field] != raw}
    assert changed == {"head"}


def test_a_member_that_the_leader_forgets_has_no_assignment() -> None:
    driver, (leader, follower) = stable_group()
    rejoin(driver, follower, leader)
    driver.sync(leader, assignments={leader: b"all"})
    assert driver.synced(driver.sync(follower)).assignment == b""
    driver.restart()
    assert driver.synced(driver.sync(follower)).assignment == b""
