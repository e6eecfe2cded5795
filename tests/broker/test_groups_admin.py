"""Groups as an administrator sees them: listed, described, deleted, with an identity that lasts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.broker import members
from tests.broker.administrator import GROUP, Administrator
from tests.broker.members import (
    DELETE_VERSIONS,
    DESCRIBE_VERSIONS,
    GROUP_ID_NOT_FOUND,
    LIST_VERSIONS,
    NON_EMPTY_GROUP,
    NONE,
    Member,
    commit,
)
from tests.broker.peers import connect, metadata
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.redis_view import RedisView


@pytest.fixture
def connection(groups_broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(groups_broker) as found:
        yield found


@pytest.fixture
def member(groups_broker: BrokerProcess, group: str) -> Iterator[Member]:
    with Member(groups_broker, group) as found:
        yield found


def identity(connection: BrokerConnection, group: str) -> dict[str, str | None]:
    answer = Administrator(connection).describe(group, resource_type=GROUP)
    return {config.name: config.value for config in answer.configs}


class TestDescribe:
    @pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
    def test_members_and_their_assignments(self, connection: BrokerConnection, member: Member, version: int) -> None:
        member.instance_id = "till-1"
        member.form()
        found = members.describe(connection, member.group, version)
        assert (found.error_code, found.group_state) == (NONE, "Stable")
        assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
        (row,) = found.members
        assert (row.member_id, row.client_id, row.client_host) == (member.id, "member", "/127.0.0.1")
        assert row.group_instance_id == ("till-1" if version >= 4 else None)
        assert (row.member_metadata, row.member_assignment) == (member.protocols["range"], b"everything")

    @pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
    def test_a_group_that_does_not_exist_is_dead(self, connection: BrokerConnection, group: str, version: int) -> None:
        for name in (group, ""):
            found = members.describe(connection, name, version)
            assert (found.group_state, found.members) == ("Dead", [])
            assert found.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else NONE)

    def test_the_states_that_a_group_goes_through(
        self, groups_broker: BrokerProcess, connection: BrokerConnection, member: Member
    ) -> None:
        seen = [members.state_of(connection, member.group)]
        member.join()
        seen.append(members.state_of(connection, member.group))
        member.sync({member.id: b""})
        seen.append(members.state_of(connection, member.group))
        with Member(groups_broker, member.group) as other:
            other.ask_join()
            other.joined()
            other.ask_join()
            wait_until(lambda: member.heartbeat() == members.REBALANCE_IN_PROGRESS, "no rebalance began")
            seen.append(members.state_of(connection, member.group))
        member.leave()
        assert seen == ["Dead", "CompletingRebalance", "Stable", "PreparingRebalance"]


class TestList:
    @pytest.mark.parametrize("version", LIST_VERSIONS)
    def test_with_state_since_4_and_type_since_5(
        self, connection: BrokerConnection, member: Member, version: int
    ) -> None:
        member.form()
        expected = ("consumer", "Stable" if version >= 4 else "", "classic" if version >= 5 else "")
        assert members.list_groups(connection, version)[member.group] == expected

    def test_filters_whatever_their_case(
        self, connection: BrokerConnection, member: Member, group: str, topic: str
    ) -> None:
        metadata(connection, topic)
        simple = f"{group}-simple"
        commit(connection, simple, topic, {0: 1})
        member.form()

        def found(states: list[str], types: list[str]) -> set[str]:
            return {group, simple} & members.list_groups(connection, states=states, types=types).keys()

        assert found([], []) == {group, simple}
        assert found(["stable"], []) == {group}
        assert found(["Empty", "Dead"], []) == {simple}
        assert found([], ["Classic"]) == {group, simple}
        assert found([], ["consumer"]) == set()


class TestDelete:
    @pytest.mark.parametrize("version", DELETE_VERSIONS)
    def test_only_groups_without_members_go(
        self, connection: BrokerConnection, member: Member, topic: str, version: int
    ) -> None:
        metadata(connection, topic)
        member.form()
        member.commit(topic, {0: 4})
        group = member.group
        assert members.delete_groups(connection, group, f"no-{group}", "", version=version) == [
            NON_EMPTY_GROUP,
            GROUP_ID_NOT_FOUND,
            members.INVALID_GROUP_ID,
        ]
        member.leave()
        assert members.delete_groups(connection, group, version=version) == [NONE]
        assert members.state_of(connection, group) == "Dead"
        assert group not in members.list_groups(connection)
        assert members.committed_offset(connection, group, topic) == -1

    def test_only_the_token_of_its_owner_stays_in_redis_and_expires(
        self, groups_broker: BrokerProcess, connection: BrokerConnection, member: Member, topic: str
    ) -> None:
        metadata(connection, topic)
        member.form()
        member.commit(topic, {0: 4})
        with RedisView.of(groups_broker) as redis:
            assert redis.keys(f"*{member.group}*")
            member.leave()
            members.delete_groups(connection, member.group)
            key = f"headrace:default:{{{member.group}}}:group"
            assert redis.keys(f"*{member.group}*") == [key]
            assert redis.hash_fields(key) == {"owner"}
            assert redis.call("TTL", key) > 0
            assert not redis.call("SISMEMBER", "headrace:default:groups", member.group)
            assert not redis.call("HEXISTS", "headrace:default:group-slugs", member.group)


class TestIdentity:
    def test_it_lasts_over_the_last_leave_and_the_generation_goes_on(
        self, connection: BrokerConnection, member: Member
    ) -> None:
        member.form()
        first = identity(connection, member.group)
        assert str(first["headrace.group.id"]).startswith("cgp_")
        assert first["headrace.group.locator"] == f"default/consumer-groups/{member.group}"
        member.leave()
        member.id = ""
        member.form()
        second = identity(connection, member.group)
        assert second["headrace.group.id"] == first["headrace.group.id"]
        assert int(str(second["headrace.group.generation"])) > int(str(first["headrace.group.generation"]))

    def test_two_group_ids_with_one_slug_stay_two_groups(self, groups_broker: BrokerProcess, group: str) -> None:
        with Member(groups_broker, group) as one, Member(groups_broker, group.upper()) as two:
            one.form()
            two.form()
            ids = [identity(member.connection, member.group) for member in (one, two)]
        assert [found["headrace.group.locator"] for found in ids] == [
            f"default/consumer-groups/{group}",
            f"default/consumer-groups/{group}-2",
        ]
        assert ids[0]["headrace.group.id"] != ids[1]["headrace.group.id"]

    def test_a_slug_is_free_again_when_its_group_is_deleted(
        self, groups_broker: BrokerProcess, connection: BrokerConnection, member: Member
    ) -> None:
        member.form()
        first = identity(connection, member.group)
        member.leave()
        members.delete_groups(connection, member.group)
        with Member(groups_broker, member.group.upper()) as other:
            other.form()
            second = identity(connection, other.group)
        assert second["headrace.group.locator"] == first["headrace.group.locator"]
        assert second["headrace.group.id"] != first["headrace.group.id"]

    def test_a_simple_group_and_one_that_does_not_exist_have_none(
        self, connection: BrokerConnection, group: str, topic: str
    ) -> None:
        metadata(connection, topic)
        assert not [name for name in identity(connection, group) if name.startswith("headrace.")]
        commit(connection, group, topic, {0: 1})
        assert not [name for name in identity(connection, group) if name.startswith("headrace.")]


class TestGroupsThatDoNotExist:
    def test_asking_about_them_leaves_no_key_and_no_memory(
        self, groups_broker: BrokerProcess, connection: BrokerConnection, group: str, topic: str
    ) -> None:
        metadata(connection, topic)
        with RedisView.of(groups_broker) as redis, Member(groups_broker, "") as member:

            def traces() -> tuple[int, int, int]:
                names, slugs = "headrace:default:groups", "headrace:default:group-slugs"
                return redis.call("DBSIZE"), redis.call("SCARD", names), redis.call("HLEN", slugs)

            before = traces()
            for number in range(800):
                member.group, member.id = f"{group}-{number}-" + "x" * 30_000, ""
                assert member.join(session_ms=1).error_code == members.INVALID_SESSION_TIMEOUT
                member.id, member.generation = "somebody", 1
                assert member.heartbeat() == members.UNKNOWN_MEMBER_ID
                assert member.sync().error_code == members.UNKNOWN_MEMBER_ID
                assert member.commit(topic, {0: 1}) == {0: GROUP_ID_NOT_FOUND}
                member.leave()
                members.fetch_offsets(connection, member.group, None)
                members.describe(connection, member.group)
                if number == 200:
                    settled_bytes = groups_broker.rss_bytes()
            assert traces() == before
        grown = groups_broker.rss_bytes() - settled_bytes
        assert grown < 12 << 20, f"{grown >> 20} MiB for names of 18 MiB"


class TestRetention:
    def test_an_empty_group_its_offsets_and_its_mirrors_are_forgotten(
        self, start_broker: StartBroker, group: str, topic: str
    ) -> None:
        broker = start_broker(
            group_initial_rebalance_delay_ms=0, offsets_retention_ms=300, offsets_retention_check_ms=50
        )
        with connect(broker) as connection, Member(broker, group) as member, RedisView.of(broker) as redis:
            metadata(connection, topic)
            simple = f"{group}-simple"
            assert commit(connection, simple, topic, {0: 1}) == {0: NONE}
            member.form()
            assert member.commit(topic, {0: 1}) == {0: NONE}
            wait_until(lambda: simple not in members.list_groups(connection), "the simple group was kept")
            assert members.state_of(connection, group) == "Stable", "a group with members is kept"
            member.leave()
            wait_until(lambda: group not in members.list_groups(connection), "the empty group was kept")
            assert all(redis.call("TTL", key) > 0 for key in redis.keys(f"*{group}*"))
            wait_until(lambda: redis.groups_of(redis.log_key(topic)) == {}, "the mirrors were kept")

    def test_offsets_of_deleted_topics_go(self, start_broker: StartBroker, group: str, topic: str) -> None:
        broker = start_broker(group_initial_rebalance_delay_ms=0, offsets_retention_check_ms=50)
        with connect(broker) as connection, Member(broker, group) as member, RedisView.of(broker) as redis:
            metadata(connection, topic, f"{topic}-2")
            member.form()
            member.commit(topic, {0: 1})
            member.commit(f"{topic}-2", {0: 1})
            connection.send_for(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000), DeleteTopicsResponse, 5)
            key = f"headrace:default:{{{group}}}:offsets"
            wait_until(lambda: redis.hash_fields(key) == {f"{topic}-2:0"}, "they were kept")
