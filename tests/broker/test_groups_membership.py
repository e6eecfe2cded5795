"""Joining, syncing, heartbeats and leaving over TCP, in every version: a sample of the table's cells.

The machine behind it is tested cell by cell on a virtual clock; here it is what travels, and the versions' differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.leave_group import MemberIdentity
from tests.broker import members
from tests.broker.members import (
    COORDINATOR_NOT_AVAILABLE,
    HEARTBEAT_VERSIONS,
    JOIN_VERSIONS,
    LEAVE_VERSIONS,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    SYNC_VERSIONS,
    UNKNOWN_MEMBER_ID,
    Member,
    assign,
    form,
    join_again,
    rebalance,
)
from tests.broker.peers import connect, metadata
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.redis_view import RedisView


@pytest.fixture
def member(groups_broker: BrokerProcess, group: str) -> Iterator[Member]:
    with Member(groups_broker, group) as found:
        yield found


@pytest.fixture
def other(groups_broker: BrokerProcess, group: str) -> Iterator[Member]:
    with Member(groups_broker, group, client_id="other") as found:
        yield found


@pytest.fixture
def observer(groups_broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(groups_broker) as connection:
        yield connection


def wait_for_state(observer: BrokerConnection, group: str, state: str) -> None:
    wait_until(lambda: members.state_of(observer, group) == state, f"the group did not become {state}")


class TestJoin:
    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_the_first_member_leads_and_learns_who_is_in(self, member: Member, version: int) -> None:
        answer = member.join(version)
        assert (answer.error_code, answer.generation_id) == (NONE, 1)
        assert answer.leader == answer.member_id == member.id
        assert [row.member_id for row in answer.members] == [member.id]
        assert answer.members[0].metadata == member.protocols["range"]
        assert answer.protocol_name == "range"
        assert answer.protocol_type == ("consumer" if version >= 7 else None)

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_since_version_4_a_new_member_is_given_an_id_first(self, member: Member, version: int) -> None:
        member.ask_join(version)
        answer = member.joined()
        assert answer.error_code == (MEMBER_ID_REQUIRED if version >= 4 else NONE)
        assert answer.member_id.startswith("member-")
        if answer.error_code:
            assert answer.protocol_name == (None if version >= 7 else "")

    def test_a_member_id_that_is_handed_out_stores_no_group(self, groups_broker: BrokerProcess, group: str) -> None:
        with RedisView.of(groups_broker) as redis:
            for number in range(50):
                with Member(groups_broker, f"{group}-{number}") as stranger:
                    stranger.ask_join()
                    assert stranger.joined().error_code == MEMBER_ID_REQUIRED
            assert redis.keys(f"*{group}*") == []
            assert not [name for name in redis.members("headrace:default:groups") if name.startswith(group)]
            assert not [slug for slug in redis.hash_fields("headrace:default:group-slugs") if slug.startswith(group)]

    def test_a_handed_out_member_id_outlives_a_lost_connection_to_the_store(
        self, groups_broker: BrokerProcess, member: Member
    ) -> None:
        member.ask_join()
        assert member.joined().error_code == MEMBER_ID_REQUIRED
        with RedisView.of(groups_broker) as redis:
            redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        handed_out, codes = member.id, []

        def is_in() -> bool:
            codes.append(member.join().error_code)
            return codes[-1] == NONE

        wait_until(is_in, "it was not let in")
        assert set(codes) <= {NONE, COORDINATOR_NOT_AVAILABLE}
        assert member.id == handed_out

    @pytest.mark.parametrize("version", range(5, 10))
    def test_a_static_member_needs_no_id_first(self, groups_broker: BrokerProcess, group: str, version: int) -> None:
        with Member(groups_broker, group, instance_id="till-1") as static:
            static.ask_join(version)
            answer = static.joined()
            assert answer.error_code == NONE
            assert answer.member_id.startswith("till-1-")
            assert answer.members[0].group_instance_id == "till-1"

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_an_unknown_member_id_is_refused(self, member: Member, version: int) -> None:
        member.id = "nobody"
        assert member.join(version).error_code == UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_a_session_timeout_outside_the_bounds_is_refused_before_the_group_is_looked_at(
        self, member: Member, observer: BrokerConnection, version: int
    ) -> None:
        member.id = "nobody"
        for session_ms in (499, 30 * 60_000 + 1):
            assert member.join(version, session_ms=session_ms).error_code == members.INVALID_SESSION_TIMEOUT
        assert members.state_of(observer, member.group) == "Dead"

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_a_group_without_an_id_is_refused(self, member: Member, version: int) -> None:
        member.group = ""
        answer = member.join(version)
        assert answer.error_code == members.INVALID_GROUP_ID
        assert answer.protocol_name == (None if version >= 7 else "")

    @pytest.mark.parametrize("version", JOIN_VERSIONS)
    def test_a_protocol_without_a_name_is_told_as_kafka_tells_it(self, member: Member, version: int) -> None:
        member.protocols = {"": b""}
        answer = member.join(version)
        if answer.error_code == members.MEMBER_ID_REQUIRED:
            member.id = answer.member_id
            answer = member.join(version)
        assert (answer.error_code, answer.protocol_name) == (members.NONE, None if version >= 7 else "")

    def test_no_protocol_and_no_common_protocol_are_refused(self, member: Member, other: Member) -> None:
        other.protocols = {}
        assert other.join().error_code == members.INCONSISTENT_PROTOCOL
        member.form()
        other.protocols = {"sticky": b""}
        assert other.join().error_code == members.INCONSISTENT_PROTOCOL
        other.protocols, other.protocol_type = {"range": b""}, "connect"
        assert other.join().error_code == members.INCONSISTENT_PROTOCOL

    def test_the_protocol_that_all_support_is_chosen(self, member: Member, other: Member) -> None:
        member.protocols = {"sticky": b"s1", "range": b"r1"}
        other.protocols = {"range": b"r2"}
        member.join()
        member.ask_sync({member.id: b""}, protocol_name="sticky")
        assert member.synced().error_code == NONE
        other.ask_join()
        other.joined()
        other.ask_join()
        wait_until(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS, "it was not told")
        answer = member.join()
        assert answer.protocol_name == other.joined().protocol_name == "range"
        assert {row.metadata for row in answer.members} == {b"r1", b"r2"}

    def test_any_protocol_type_is_carried(self, member: Member, observer: BrokerConnection) -> None:
        member.protocol_type, member.protocols = "connect", {"sessioned": b"\x00\xff"}
        assert member.join().protocol_type == "connect"
        member.ask_sync({member.id: b"task"}, protocol_type="connect", protocol_name="sessioned")
        assert member.synced().assignment == b"task"
        assert members.list_groups(observer)[member.group] == ("connect", "Stable", "classic")

    def test_a_follower_that_joins_again_unchanged_gets_the_current_generation(
        self, member: Member, other: Member
    ) -> None:
        form(member, other)
        answer = other.join()
        assert (answer.error_code, answer.generation_id, answer.members) == (NONE, other.generation, [])
        assert member.heartbeat() == NONE

    def test_more_members_than_the_limit_are_turned_away(self, start_broker: StartBroker, group: str) -> None:
        broker = start_broker(group_max_size=1, group_initial_rebalance_delay_ms=0)
        with Member(broker, group) as first, Member(broker, group) as second:
            first.form()
            assert second.join().error_code == members.GROUP_FULL
            assert first.heartbeat() == NONE


class TestSync:
    @pytest.mark.parametrize("version", SYNC_VERSIONS)
    def test_followers_wait_for_the_leaders_assignment(self, member: Member, other: Member, version: int) -> None:
        form(member, other)
        rebalance(member, other)
        other.ask_sync(version=version)
        member.ask_sync({member.id: b"\x00left", other.id: b"right\xff"}, version)
        assert (member.synced().assignment, other.synced().assignment) == (b"\x00left", b"right\xff")
        again = other.sync(version=version)
        assert again.assignment == b"right\xff"
        assert again.protocol_name == ("range" if version >= 5 else None)

    @pytest.mark.parametrize("version", SYNC_VERSIONS)
    def test_a_sync_of_nobody_or_of_another_generation_is_refused(self, member: Member, version: int) -> None:
        assert member.sync(version=version).error_code == UNKNOWN_MEMBER_ID
        member.form()
        member.generation += 1
        assert member.sync(version=version).error_code == members.ILLEGAL_GENERATION
        member.id = "nobody"
        assert member.sync(version=version).error_code == UNKNOWN_MEMBER_ID

    def test_since_version_5_the_protocol_has_to_be_named_and_right(self, member: Member) -> None:
        member.form()
        for protocol_type, protocol_name in ((None, "range"), ("consumer", None), ("connect", "range")):
            member.ask_sync(protocol_type=protocol_type, protocol_name=protocol_name)
            assert member.synced().error_code == members.INCONSISTENT_PROTOCOL

    def test_a_join_sends_waiting_syncs_back(self, member: Member, other: Member, groups_broker: BrokerProcess) -> None:
        form(member, other)
        rebalance(member, other)
        other.ask_sync()
        with Member(groups_broker, member.group) as third:
            third.ask_join()
            third.joined()
            third.ask_join()
            assert other.synced().error_code == REBALANCE_IN_PROGRESS
            assert other.heartbeat() == REBALANCE_IN_PROGRESS


class TestHeartbeat:
    @pytest.mark.parametrize("version", HEARTBEAT_VERSIONS)
    def test_it_says_whether_to_join_again(self, member: Member, other: Member, version: int) -> None:
        member.join()
        assert member.heartbeat(version) == NONE, "CompletingRebalance"
        member.sync({member.id: b""})
        assert member.heartbeat(version) == NONE, "Stable"
        other.ask_join()
        other.joined()
        other.ask_join()
        wait_until(lambda: member.heartbeat(version) == REBALANCE_IN_PROGRESS, "it was not told")

    @pytest.mark.parametrize("version", HEARTBEAT_VERSIONS)
    def test_unknown_members_groups_and_generations_are_refused(self, member: Member, version: int) -> None:
        member.id = "nobody"
        assert member.heartbeat(version, generation=1) == UNKNOWN_MEMBER_ID
        member.id = ""
        member.form()
        assert member.heartbeat(version, generation=7) == members.ILLEGAL_GENERATION
        member.id = "nobody"
        assert member.heartbeat(version) == UNKNOWN_MEMBER_ID

    def test_a_silent_member_is_removed_and_the_other_is_told(self, member: Member, other: Member) -> None:
        member.form()
        other.ask_join(session_ms=500)
        other.joined()
        other.ask_join(session_ms=500)
        join_again(member)
        other.joined()
        assign({}, member, other)
        wait_until(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS, "the silent member was kept")
        assert [row.member_id for row in member.join().members] == [member.id]
        assert other.heartbeat() == UNKNOWN_MEMBER_ID

    def test_the_late_commit_of_a_member_whose_session_ended_is_refused(
        self, member: Member, observer: BrokerConnection, topic: str
    ) -> None:
        metadata(member.connection, topic)
        member.join(session_ms=500)
        member.sync({member.id: b""})
        assert member.commit(topic, {0: 1}) == {0: NONE}
        wait_for_state(observer, member.group, "Empty")
        assert member.commit(topic, {0: 2}) == {0: UNKNOWN_MEMBER_ID}
        assert members.committed_offset(observer, member.group, topic) == 1


class TestLeave:
    @pytest.mark.parametrize("version", LEAVE_VERSIONS)
    def test_one_member_leaves_and_the_group_is_empty(
        self, member: Member, observer: BrokerConnection, version: int
    ) -> None:
        member.form()
        answer = member.leave(version)
        assert answer.error_code == NONE
        assert [row.error_code for row in answer.members] == ([NONE] if version >= 3 else [])
        assert members.state_of(observer, member.group) == "Empty"

    @pytest.mark.parametrize("version", LEAVE_VERSIONS)
    def test_an_unknown_members_error_is_its_own_rows_since_version_3(self, member: Member, version: int) -> None:
        member.form()
        answer = member.remove([MemberIdentity("nobody")], version)
        if version >= 3:
            assert (answer.error_code, [row.error_code for row in answer.members]) == (NONE, [UNKNOWN_MEMBER_ID])
        else:
            assert answer.error_code == UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", range(3, 6))
    def test_several_leave_at_once_static_ones_by_their_name(
        self, groups_broker: BrokerProcess, member: Member, observer: BrokerConnection, version: int
    ) -> None:
        with Member(groups_broker, member.group, instance_id="till-1") as static:
            form(member, static)
            rows = [MemberIdentity(member.id), MemberIdentity("", "till-1"), MemberIdentity("", "till-2")]
            answer = member.remove(rows, version)
            found = [(row.member_id, row.group_instance_id, row.error_code) for row in answer.members]
            assert found == [(member.id, None, NONE), ("", "till-1", NONE), ("", "till-2", UNKNOWN_MEMBER_ID)]
            assert members.state_of(observer, member.group) == "Empty"

    def test_the_generation_goes_on_after_the_last_leave(self, member: Member) -> None:
        member.form()
        first = member.generation
        member.leave()
        member.id = ""
        assert member.join().generation_id > first


class TestStaticMembers:
    def test_one_that_comes_back_takes_over_without_a_rebalance(
        self, groups_broker: BrokerProcess, member: Member
    ) -> None:
        with (
            Member(groups_broker, member.group, instance_id="till-1") as before,
            Member(groups_broker, member.group, instance_id="till-1") as after,
        ):
            form(member, before)
            answer = after.join()
            assert (answer.error_code, answer.generation_id) == (NONE, before.generation)
            assert after.id != before.id
            assert after.sync().assignment == before.id.encode()
            assert member.heartbeat() == after.heartbeat() == NONE
            assert before.heartbeat() == members.FENCED_INSTANCE_ID
            assert before.sync().error_code == members.FENCED_INSTANCE_ID
            assert before.commit("orders", {0: 1}) == {0: members.UNKNOWN_TOPIC_OR_PARTITION}

    @pytest.mark.parametrize("version", range(5, 10))
    def test_a_leader_that_comes_back_is_told_to_skip_the_assignment_since_version_9(
        self, groups_broker: BrokerProcess, group: str, version: int
    ) -> None:
        with (
            Member(groups_broker, group, instance_id="till-1") as before,
            Member(groups_broker, group, instance_id="till-1") as after,
        ):
            before.form()
            answer = after.join(version)
            if version >= 9:
                assert (answer.leader, answer.skip_assignment) == (after.id, True)
                assert [row.member_id for row in answer.members] == [after.id]
            else:
                assert (answer.leader, answer.skip_assignment, answer.members) == (before.id, False, [])

    def test_the_order_of_checks(self, groups_broker: BrokerProcess, member: Member) -> None:
        with Member(groups_broker, member.group, instance_id="till-1") as static:
            form(member, static)
            static.instance_id = "till-2"
            assert static.heartbeat(generation=99) == UNKNOWN_MEMBER_ID, "an instance that nobody knows"
            static.instance_id, known_id = "till-1", static.id
            static.id = member.id
            assert static.heartbeat(generation=99) == members.FENCED_INSTANCE_ID, "then who holds it"
            static.id = known_id
            assert static.heartbeat(generation=99) == members.ILLEGAL_GENERATION, "then the generation"


class TestParkedRequests:
    def test_a_member_that_went_away_while_its_join_was_held_back_does_not_hold_up_the_others_for_ever(
        self, groups_broker: BrokerProcess, member: Member, observer: BrokerConnection
    ) -> None:
        member.form()
        with Member(groups_broker, member.group) as gone:
            gone.ask_join(session_ms=500)
            gone.joined()
            gone.ask_join(session_ms=500)
            wait_for_state(observer, member.group, "PreparingRebalance")
        assert member.join().error_code == NONE
        member.ask_sync({member.id: b""})
        assert member.synced().error_code == NONE
        wait_until(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS, "the one that went away was kept")
        assert [row.member_id for row in member.join().members] == [member.id]

    def test_a_stop_of_the_broker_does_not_wait_for_them(self, start_broker: StartBroker, group: str) -> None:
        broker = start_broker(group_initial_rebalance_delay_ms=60_000)
        with Member(broker, group) as member, connect(broker) as observer:
            member.ask_join()
            member.joined()
            member.ask_join()
            wait_for_state(observer, group, "PreparingRebalance")
            assert broker.stop() == 0
            assert "requests in flight were cut off" not in broker.log


class TestWhileAGroupIsStored:
    def test_what_comes_meanwhile_is_answered_afterwards(self, start_broker: StartBroker, group: str) -> None:
        broker = start_broker(group_initial_rebalance_delay_ms=0)
        with (
            RedisView.of(broker) as redis,
            Member(broker, group) as leader,
            Member(broker, group) as follower,
            Member(broker, group) as alive,
            Member(broker, group) as newcomer,
        ):
            form(leader, follower, alive)
            rebalance(leader, follower, alive)
            redis.call("CLIENT", "PAUSE", 60_000, "WRITE")
            leader.ask_sync({follower.id: b"work", alive.id: b"more work"})
            wait_until(lambda: redis.call("INFO", "clients")["blocked_clients"] > 0, "nothing is being stored")
            follower.ask_sync()
            alive.ask_heartbeat()
            newcomer.ask_join()
            redis.call("CLIENT", "UNPAUSE")
            assert [member.synced().assignment for member in (leader, follower)] == [b"", b"work"]
            assert alive.heard() == NONE
            assert newcomer.joined().error_code == MEMBER_ID_REQUIRED
            assert alive.sync().assignment == b"more work"

    def test_what_cannot_be_stored_is_refused_and_whoever_came_meanwhile_is_answered(
        self, start_broker: StartBroker, group: str
    ) -> None:
        broker = start_broker(group_initial_rebalance_delay_ms=0, store_timeout_ms=300)
        with (
            RedisView.of(broker) as redis,
            Member(broker, group) as leader,
            Member(broker, group) as follower,
        ):
            form(leader, follower)
            rebalance(leader, follower)
            redis.call("CLIENT", "PAUSE", 60_000, "WRITE")
            leader.ask_sync({follower.id: b"work"})
            wait_until(lambda: redis.call("INFO", "clients")["blocked_clients"] > 0, "nothing is being stored")
            follower.ask_sync()
            refused = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
            assert leader.synced().error_code in refused
            redis.call("CLIENT", "UNPAUSE")
            wait_until(lambda: leader.sync({follower.id: b"work"}).error_code == NONE, "the leader cannot sync")
            answer = follower.synced()
            assert (answer.error_code, answer.assignment) == (NONE, b"work") or answer.error_code in refused
            assert follower.sync().assignment == b"work"


class TestFindCoordinator:
    @pytest.mark.parametrize("version", range(7))
    def test_one_key_and_since_version_4_many(
        self, groups_broker: BrokerProcess, observer: BrokerConnection, version: int
    ) -> None:
        request = FindCoordinatorRequest(key="a", coordinator_keys=["a", "b"])
        answer = observer.send_for(request, FindCoordinatorResponse, version)
        if version >= 4:
            assert [(c.key, c.error_code) for c in answer.coordinators] == [("a", NONE), ("b", NONE)]
            assert {(c.host, c.port) for c in answer.coordinators} == {(groups_broker.host, groups_broker.port)}
        else:
            assert (answer.error_code, answer.host, answer.port) == (NONE, groups_broker.host, groups_broker.port)
