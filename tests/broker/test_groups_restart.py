"""Groups that outlive the broker, the store and the node that looked after them: nobody has to join again."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from functools import partial
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest

from headrace.client.connection import BrokerConnection
from headrace.client.errors import BrokerUnreachable
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker import members
from tests.broker.administrator import GROUP, Administrator
from tests.broker.members import (
    COORDINATOR_NOT_AVAILABLE,
    LOAD_IN_PROGRESS,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    Member,
    assign,
    committed_offset,
    form,
    join_again,
    rebalance,
)
from tests.broker.peers import connect, metadata
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis

AT_ONCE = {"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 500}
QUICK_LEASE = {"node_lease_ms": 1_000}


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(durability="always", **AT_ONCE)


def restart(broker: BrokerProcess, *group: Member) -> None:
    """kill -9 and start again; members connect again."""
    broker.kill()
    broker.start()
    for member in group:
        reconnect(member, broker)


def reconnect(member: Member, broker: BrokerProcess) -> None:
    member.connection.close()
    member.connection = connect(broker)


def heartbeat_gives(member: Member, error: int) -> bool:
    return member.heartbeat() == error


def wait_for_heartbeat(member: Member, error: int) -> None:
    wait_until(partial(heartbeat_gives, member, error), f"the heartbeat never gave {error}")


def identity(connection: BrokerConnection, group: str) -> list[str | None]:
    return [config.value for config in Administrator(connection).describe(group, resource_type=GROUP).configs]


class TestKilledBroker:
    def test_a_stable_group_goes_on_in_the_same_generation(self, broker: BrokerProcess, group: str, topic: str) -> None:
        with Member(broker, group) as leader, Member(broker, group) as follower:
            metadata(leader.connection, topic)
            form(leader, follower)
            assert follower.commit(topic, {0: 42}, metadata="note", epoch=3) == {0: NONE}
            before = identity(leader.connection, group)
            restart(broker, leader, follower)
            assert identity(leader.connection, group) == before
            assert members.state_of(leader.connection, group) == "Stable"
            assert [member.heartbeat() for member in (leader, follower)] == [NONE, NONE]
            assert follower.sync().assignment == follower.id.encode()
            assert members.fetch_offsets(leader.connection, group, None)[1] == {(topic, 0): (42, 3, "note", NONE)}
            assert follower.commit(topic, {0: 43}) == {0: NONE}
            assert members.describe(leader.connection, group).members[0].client_host == "/127.0.0.1"

    def test_while_the_assignment_is_awaited(self, broker: BrokerProcess, group: str) -> None:
        with Member(broker, group) as leader, Member(broker, group) as follower:
            form(leader, follower)
            rebalance(leader, follower)
            generation = leader.generation
            restart(broker, leader, follower)
            assert members.state_of(leader.connection, group) == "CompletingRebalance"
            assert leader.join().generation_id == follower.join().generation_id == generation
            assign({follower.id: b"work"}, leader, follower)
            assert follower.sync().assignment == b"work"

    def test_while_members_join_again(self, broker: BrokerProcess, group: str) -> None:
        with Member(broker, group) as leader, Member(broker, group) as follower:
            form(leader, follower)
            generation = leader.generation
            leader.ask_join()
            wait_for_heartbeat(follower, REBALANCE_IN_PROGRESS)
            restart(broker, leader, follower)
            assert members.state_of(leader.connection, group) == "PreparingRebalance"
            join_again(leader, follower)
            assert leader.generation == follower.generation == generation + 1

    def test_an_empty_group_keeps_its_offsets_identity_and_generation(
        self, broker: BrokerProcess, group: str, topic: str
    ) -> None:
        with Member(broker, group) as member:
            metadata(member.connection, topic)
            member.form()
            member.commit(topic, {0: 42})
            member.leave()
            before = identity(member.connection, group)
            restart(broker, member)
            assert members.state_of(member.connection, group) == "Empty"
            assert identity(member.connection, group) == before
            assert committed_offset(member.connection, group, topic) == 42
            generation, member.id = member.generation, ""
            assert member.join().generation_id > generation

    def test_a_simple_group_keeps_its_offsets(self, broker: BrokerProcess, group: str, topic: str) -> None:
        with connect(broker) as connection:
            metadata(connection, topic)
            members.commit(connection, group, topic, {0: 42})
        restart(broker)
        with connect(broker) as connection:
            assert committed_offset(connection, group, topic) == 42
            assert members.list_groups(connection) == {group: ("", "Empty", "classic")}

    def test_a_static_member_that_was_replaced_before_is_not_fenced_after(
        self, broker: BrokerProcess, group: str
    ) -> None:
        with (
            Member(broker, group) as leader,
            Member(broker, group, instance_id="till-1") as before,
            Member(broker, group, instance_id="till-1") as after,
        ):
            form(leader, before)
            assert after.join().error_code == NONE
            restart(broker, leader, before, after)
            assert after.heartbeat() == leader.heartbeat() == NONE
            assert after.sync().assignment == before.id.encode()
            assert before.heartbeat() == members.FENCED_INSTANCE_ID

    def test_a_member_that_does_not_come_back_is_removed_although_nobody_asks(
        self, broker: BrokerProcess, group: str
    ) -> None:
        with Member(broker, group) as member:
            member.join(session_ms=500)
            member.sync({member.id: b""})
            restart(broker)
            with connect(broker) as observer:
                wait_until(lambda: members.list_groups(observer)[group][1] == "Empty", "a member that is gone was kept")


class TestStandingStill:
    def test_a_broker_that_stood_still_longer_than_its_sessions_removes_nobody(
        self, start_broker: StartBroker, group: str
    ) -> None:
        broker = start_broker(**AT_ONCE)
        with Member(broker, group) as member:
            member.join(session_ms=500)
            member.sync({member.id: b""})
            broker.send_signal(SIGSTOP)
            let_pass(2.0)
            broker.send_signal(SIGCONT)
            assert member.heartbeat() == NONE


class TestStoreAway:
    def test_what_has_to_be_stored_is_refused_to_be_retried_and_nobody_joins_again(
        self, start_broker: StartBroker, start_redis: StartRedis, group: str, topic: str
    ) -> None:
        redis = start_redis()
        broker = start_broker(redis=redis.url, **AT_ONCE)
        with Member(broker, group) as leader, Member(broker, group) as follower, connect(broker) as observer:
            metadata(observer, topic)
            form(leader, follower)
            assert leader.commit(topic, {0: 7}) == {0: NONE}
            redis.stop(SIGKILL)
            wait_until(lambda: leader.commit(topic, {0: 8}) == {0: COORDINATOR_NOT_AVAILABLE}, "commits went on")
            assert leader.heartbeat() == NONE
            for asked in (group, f"other-{group}"):  # of the one, another node may have stored a later offset
                assert members.fetch_offsets(observer, asked, None)[0] == LOAD_IN_PROGRESS
                assert members.fetch_offsets(observer, asked, {topic: [0]}, 1)[1] == {
                    (topic, 0): (-1, -1, "", LOAD_IN_PROGRESS)
                }
            redis.start()
            wait_until(lambda: leader.commit(topic, {0: 9}) == {0: NONE}, "commits do not work again")
            assert leader.heartbeat() == follower.heartbeat() == NONE
            assert committed_offset(observer, group, topic) == 9

    def test_longer_than_the_lease_and_the_sessions(
        self, start_broker: StartBroker, start_redis: StartRedis, group: str
    ) -> None:
        redis = start_redis()
        broker = start_broker(redis=redis.url, **AT_ONCE, **QUICK_LEASE)
        with Member(broker, group) as member, connect(broker) as observer:
            member.join(session_ms=2_000)
            member.sync({member.id: b""})
            redis.send_signal(SIGSTOP)
            wait_for_heartbeat(member, NOT_COORDINATOR)
            let_pass(2.5, lambda: heartbeat_gives(member, NOT_COORDINATOR))
            redis.send_signal(SIGCONT)
            wait_until(lambda: members.describe(observer, group).error_code == NONE, "the lease did not come back")
            let_pass(1.0, lambda: members.state_of(observer, group) == "Stable")
            assert member.heartbeat() == NONE

    def test_a_store_that_went_back_in_time_gets_groups_and_commits_again(
        self, start_broker: StartBroker, start_redis: StartRedis, group: str, topic: str
    ) -> None:
        redis = start_redis()
        broker = start_broker(redis=redis.url, **AT_ONCE)
        with Member(broker, group) as leader, Member(broker, group) as follower, connect(broker) as observer:
            metadata(observer, topic)
            form(leader, follower)
            leader.commit(topic, {0: 7})
            members.commit(observer, f"{group}-simple", topic, {0: 5})
            before = identity(observer, group)
            redis.stop(SIGKILL)
            shutil.rmtree(redis.directory / "appendonlydir")
            redis.start()
            wait_until(lambda: leader.commit(topic, {0: 8}) == {0: NONE}, "commits do not work again")
            wait_until(lambda: members.list_groups(observer).keys() == {group, f"{group}-simple"}, "a group was lost")
            restart(broker, leader, follower)
        with connect(broker) as observer:
            reconnect(leader, broker)
            assert leader.heartbeat() == NONE
            assert identity(observer, group) == before
            assert committed_offset(observer, group, topic) == 8
            assert committed_offset(observer, f"{group}-simple", topic) == 5
            leader.connection.close()


class TestTwoNodes:
    def test_a_group_moves_with_its_generation_and_offsets_when_its_node_dies_and_when_it_comes_back(
        self, start_broker: StartBroker, start_redis: StartRedis, group: str, topic: str
    ) -> None:
        redis = start_redis()
        nodes = [start_broker(redis=redis.url, node_id=node, **AT_ONCE, **QUICK_LEASE) for node in (1, 2)]
        wait_until(lambda: all(owner_of(node, group) == owner_of(nodes[0], group) for node in nodes), "two owners")
        owner = next(node for node in nodes if node.port == owner_of(nodes[0], group))
        other = next(node for node in nodes if node is not owner)
        with Member(owner, group) as member:
            metadata(member.connection, topic)
            member.form()
            member.commit(topic, {0: 7})
            before = identity(member.connection, group)
            owner.kill()
            reconnect(member, other)
            wait_for_heartbeat(member, NONE)
            assert committed_offset(member.connection, group, topic) == 7
            assert identity(member.connection, group) == before
            assert member.commit(topic, {0: 8}) == {0: NONE}
            owner.start()
            wait_for_heartbeat(member, NOT_COORDINATOR)
            reconnect(member, owner)
            wait_for_heartbeat(member, NONE)
            assert committed_offset(member.connection, group, topic) == 8

    def test_a_join_that_is_held_back_is_sent_to_the_new_node(
        self, start_broker: StartBroker, start_redis: StartRedis, group: str
    ) -> None:
        redis = start_redis()
        first = start_broker(redis=redis.url, node_id=1, group_initial_rebalance_delay_ms=60_000, **QUICK_LEASE)
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(Member(first, f"{group}-{number}")) for number in range(8)]
            for member in waiting:
                member.ask_join()
                member.joined()
                member.ask_join()
            second = start_broker(redis=redis.url, node_id=2, **QUICK_LEASE)
            moved = [member for member in waiting if owner_of(second, member.group) == second.port]
            assert moved, "one of eight groups belongs to the second node, all but surely"
            assert {member.joined().error_code for member in moved} == {NOT_COORDINATOR}


def owner_of(broker: BrokerProcess, group: str) -> int:
    """The port of the node that a broker names as a group's coordinator."""
    with contextlib.suppress(BrokerUnreachable), connect(broker) as connection:
        request = FindCoordinatorRequest(coordinator_keys=[group])
        (found,) = connection.send_for(request, FindCoordinatorResponse, 4).coordinators
        return found.port
    return -1


def let_pass(seconds: float, meanwhile: Callable[[], bool] = lambda: True) -> None:
    """Time itself is what has to pass here; something holds all the while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert meanwhile()
        time.sleep(0.05)
