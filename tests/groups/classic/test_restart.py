"""A restart is a load and nothing else: from whatever was stored, clients go on or recover by themselves."""

import pytest

from headrace.groups.classic import snapshot
from headrace.groups.classic.events import LeavingMember
from headrace.groups.classic.snapshot import BadSnapshot
from headrace.groups.classic.state import Protocol
from headrace.groups.classic.table import ClassicState
from headrace.groups.classic.timers import JOIN_TIMER, SYNC_TIMER, session_timer
from headrace.groups.settings import GroupSettings
from headrace.wire.errors import ErrorCode
from tests.groups.classic.driver import REBALANCE_MS, SESSION_MS, Driver, group_in, parse, rejoin, stable_group

STORED_STATES = [
    ClassicState.EMPTY,
    ClassicState.PREPARING_REBALANCE,
    ClassicState.COMPLETING_REBALANCE,
    ClassicState.STABLE,
]


@pytest.mark.parametrize("state", STORED_STATES)
def test_the_loaded_group_is_the_stored_one(state: ClassicState) -> None:
    driver, _ = group_in(state)
    before = snapshot.take(driver.the_group)
    driver.restart()
    assert snapshot.take(driver.the_group) == before
    assert driver.is_in(state)


@pytest.mark.parametrize("state", STORED_STATES)
def test_loading_stores_nothing(state: ClassicState) -> None:
    driver, _ = group_in(state)
    stores = driver.stores
    driver.restart()
    assert driver.stores == stores


class TestStable:
    def test_everybody_goes_on_in_the_same_generation(self) -> None:
        driver, members = stable_group(3)
        generation = driver.generation
        driver.restart()
        assert [driver.heartbeat(m, generation) for m in members] == [0, 0, 0]
        assert [driver.commit(m, generation) for m in members] == [0, 0, 0]
        own = [driver.synced(driver.sync(m, generation)).assignment for m in members]
        assert own == [m.encode() for m in members]
        assert driver.is_in(ClassicState.STABLE)

    def test_sessions_start_anew(self) -> None:
        driver, members = stable_group()
        driver.advance(SESSION_MS - 1)
        driver.restart()
        armed = driver.timers.armed()
        assert {armed[session_timer(m)] for m in members} == {driver.now_ms + SESSION_MS}
        driver.advance(SESSION_MS)
        assert driver.is_in(ClassicState.EMPTY)

    def test_a_follower_with_several_protocols_that_joins_again_unchanged_needs_no_rebalance(self) -> None:
        both = (Protocol("sticky", b"s"), Protocol("range", b"r"))
        driver, (_, follower) = stable_group(protocols=both)
        driver.restart()
        assert driver.joined(driver.join(follower)).generation == driver.generation
        assert driver.is_in(ClassicState.STABLE)


class TestCompletingRebalance:
    def test_members_sync_in_the_generation_that_they_were_given(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        leader = driver.the_group.leader
        assert leader is not None
        generation = driver.generation
        driver.restart()
        waiting = driver.sync(follower, generation)
        driver.sync(leader, generation, assignments={leader: b"L", follower: b"F"})
        assert driver.synced(waiting).assignment == b"F"

    def test_members_that_lost_their_answer_join_again_and_get_the_same_generation(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        leader = driver.the_group.leader
        assert leader is not None
        generation = driver.generation
        driver.restart()
        assert driver.joined(driver.join(follower)).generation == generation
        answer = driver.joined(driver.join(leader))
        assert (answer.generation, len(answer.members)) == (generation, 2)

    def test_members_that_do_not_come_back_are_removed(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        driver.restart()
        assert SYNC_TIMER in driver.timers.armed()
        driver.sync(follower)
        driver.advance(SESSION_MS)
        assert list(driver.the_group.members) == [follower]
        assert driver.is_in(ClassicState.PREPARING_REBALANCE)

    def test_members_that_come_back_but_do_not_sync_are_removed(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        leader = driver.the_group.leader
        assert leader is not None
        driver.restart()
        driver.sync(leader, assignments={})
        for _ in range(REBALANCE_MS // 5_000):
            assert driver.heartbeat(leader) == driver.heartbeat(follower) == 0
            driver.advance(5_000)
        assert list(driver.the_group.members) == [leader]


class TestPreparingRebalance:
    def test_members_learn_from_their_heartbeat_and_the_rebalance_completes(self) -> None:
        driver, (leader, follower) = stable_group()
        generation = driver.generation
        driver.join(leader)
        driver.restart()
        assert JOIN_TIMER in driver.timers.armed()
        assert driver.heartbeat(follower, generation) == 27
        tokens = [driver.join(follower), driver.join(leader)]
        assert {driver.joined(t).generation for t in tokens} == {generation + 1}

    def test_a_member_that_left_does_not_come_back_and_its_partitions_do_not_wait(self) -> None:
        driver, (leader, follower) = stable_group()
        assert driver.leave_one(follower) == 0
        driver.restart()
        assert list(driver.the_group.members) == [leader]
        assert driver.heartbeat(leader) == 27
        assert driver.joined(driver.join(leader)).error == 0

    def test_a_newcomer_whose_join_was_parked_comes_back_with_its_id(self) -> None:
        driver, (leader,) = stable_group(1)
        newcomer = driver.new_member_id()
        driver.join(newcomer)
        driver.restart()
        tokens = [driver.join(newcomer), driver.join(leader)]
        assert [driver.joined(t).error for t in tokens] == [0, 0]

    def test_the_initial_rebalance_starts_over(self) -> None:
        driver = Driver(GroupSettings())
        member_id = driver.new_member_id()
        driver.join(member_id)
        driver.restart()
        assert driver.is_in(ClassicState.EMPTY)
        assert driver.joined(driver.join(member_id)).error == ErrorCode.UNKNOWN_MEMBER_ID
        token = driver.join(driver.new_member_id())
        driver.advance(3_000)
        assert driver.joined(token).generation == 1


class TestEmpty:
    def test_the_time_since_when_and_the_generation_survive(self) -> None:
        driver, (member_id,) = stable_group(1)
        driver.leave_one(member_id)
        since_ms, generation = driver.now_ms, driver.generation
        driver.advance(1_000)
        driver.restart()
        assert driver.the_group.empty_since_ms == since_ms
        assert driver.joined(driver.join(version=3)).generation == generation + 1

    def test_handed_out_ids_are_forgotten(self) -> None:
        driver = Driver()
        member_id = driver.new_member_id()
        driver.restart()
        assert driver.joined(driver.join(member_id)).error == 25
        assert not driver.timers.armed()


class TestUnload:
    def test_whoever_waits_is_told_to_look_for_the_coordinator(self) -> None:
        driver, (leader, _) = stable_group()
        token = driver.join(leader)
        stored = driver.stored
        driver.unload()
        assert driver.joined(token).error == 16
        assert driver.joined(token).member_id == leader
        assert not driver.timers.armed()
        assert driver.stored == stored

    def test_waiting_syncs_too(self) -> None:
        driver, follower = group_in(ClassicState.COMPLETING_REBALANCE)
        token = driver.sync(follower)
        driver.unload()
        assert driver.synced(token).error == 16

    def test_the_next_owner_loads_what_was_stored(self) -> None:
        driver, members = stable_group()
        generation = driver.generation
        driver.unload()
        driver.restart()
        assert [driver.heartbeat(m, generation) for m in members] == [0, 0]


class TestSnapshots:
    @pytest.mark.parametrize("field", ["head", "member:a", "state"])
    @pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"group_id": 3}', b"\xff\xfe"])
    def test_bytes_that_are_no_group_are_refused(self, field: str, raw: bytes) -> None:
        with pytest.raises(BadSnapshot):
            snapshot.unpack(field, raw)

    def test_fields_of_a_later_release_are_ignored(self) -> None:
        driver, _ = stable_group()
        assert driver.stored is not None
        later = {field: b'{"of_a_later_release":[1],' + raw[1:] for field, raw in driver.stored.items()}
        later["of a later release"] = b"anything"
        assert parse(later) == parse(driver.stored)

    def test_a_group_without_one_of_its_members_is_refused(self) -> None:
        driver, members = stable_group()
        assert driver.stored is not None
        del driver.stored[f"member:{members[0]}"]
        with pytest.raises(BadSnapshot):
            parse(driver.stored)

    def test_a_group_that_an_earlier_release_stored_whole_is_read(self) -> None:
        driver, _ = stable_group()
        whole = snapshot.take(driver.the_group)
        assert parse({"state": snapshot.pack(whole)}) == whole

    def test_a_change_of_one_member_is_a_change_of_few_fields(self) -> None:
        driver, (leader, second, _) = stable_group(3)
        before = driver.stored
        driver.leave(LeavingMember(second))
        assert before is not None
        assert driver.stored is not None
        fields = before.keys() | driver.stored.keys()
        changed = {field for field in fields if before.get(field) != driver.stored.get(field)}
        assert changed == {"head", f"member:{second}"}
        assert f"member:{leader}" in driver.stored

    def test_any_bytes_of_metadata_and_assignment_survive(self) -> None:
        every_byte = bytes(range(256))
        driver = Driver(protocols=(Protocol("range", every_byte),))
        member_id = driver.new_member_id()
        rejoin(driver, member_id)
        driver.sync(member_id, assignments={member_id: every_byte})
        driver.restart()
        member = driver.the_group.members[member_id]
        assert (member.assignment, member.protocols[0].metadata) == (every_byte, every_byte)

    def test_every_answered_leave_is_stored_even_during_a_rebalance(self) -> None:
        driver, (leader, second, third) = stable_group(3)
        driver.join(leader)
        driver.leave(LeavingMember(second))
        driver.restart()
        assert list(driver.the_group.members) == [leader, third]
