"""Commits over TCP, in every version: stored, read back, refused, deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.broker import members
from tests.broker.members import (
    COMMIT_VERSIONS,
    FETCH_VERSIONS,
    ILLEGAL_GENERATION,
    NONE,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Member,
    commit,
    committed_offset,
    fetch_offsets,
    form,
    rebalance,
)
from tests.broker.peers import connect, metadata
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker

NOTHING = (-1, -1, "", NONE)
NO_SUCH_PARTITION = (-1, -1, "", UNKNOWN_TOPIC_OR_PARTITION)


@pytest.fixture
def connection(groups_broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(groups_broker) as found:
        yield found


@pytest.fixture
def member(groups_broker: BrokerProcess, group: str) -> Iterator[Member]:
    with Member(groups_broker, group) as found:
        yield found


@pytest.fixture
def topic_id(connection: BrokerConnection, topic: str) -> bytes:
    """Makes the topic; its id."""
    return metadata(connection, topic).topics[0].topic_id


class TestCommitAndFetch:
    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    def test_what_is_committed_comes_back(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        named = topic_id if version >= 10 else topic
        done = commit(connection, group, named, {0: 7, 3: 1 << 40}, version, metadata="är", epoch=2)
        assert done == {0: NONE, 3: NONE}
        epoch = 2 if version >= 6 else -1
        error, rows = fetch_offsets(connection, group, {topic: [0, 1, 3]})
        assert error == NONE
        assert rows == {
            (topic, 0): (7, epoch, "är", NONE),
            (topic, 1): NOTHING,
            (topic, 3): (1 << 40, epoch, "är", NONE),
        }

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_every_version_of_fetch_reads_it(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        commit(connection, group, topic, {2: 7}, metadata="note", epoch=1)
        named = topic_id if version >= 10 else topic
        error, rows = fetch_offsets(connection, group, {named: [1, 2]}, version, require_stable=version >= 7)
        assert error == NONE
        assert rows == {(named, 1): NOTHING, (named, 2): (7, 1 if version >= 5 else -1, "note", NONE)}

    @pytest.mark.parametrize("version", range(2, 11))
    def test_no_topics_means_all_that_is_committed(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        commit(connection, group, topic, {0: 1, 2: 3})
        _, rows = fetch_offsets(connection, group, None, version)
        named = topic_id if version >= 10 else topic
        assert {place: row[0] for place, row in rows.items()} == {(named, 0): 1, (named, 2): 3}

    @pytest.mark.parametrize("version", range(8, 11))
    def test_many_groups_in_one_request(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        commit(connection, group, topic, {0: 5})
        named = topic_id if version >= 10 else topic
        first, second, third = members.fetch_many(
            connection, {group: {named: [0]}, f"{group}-2": {named: [0]}, f"{group}-3": None}, version
        )
        assert [found.group_id for found in (first, second, third)] == [group, f"{group}-2", f"{group}-3"]
        assert first.topics[0].partitions[0].committed_offset == 5
        assert second.topics[0].partitions[0].committed_offset == -1
        assert (third.topics, third.error_code) == ([], NONE)

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_a_group_that_does_not_exist_has_no_offsets_and_no_error(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        named = topic_id if version >= 10 else topic
        assert fetch_offsets(connection, group, {named: [0]}, version) == (NONE, {(named, 0): NOTHING})
        assert group not in members.list_groups(connection)

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_a_partition_that_a_topic_does_not_have_is_an_error_and_a_deleted_topic_is_none(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        named, unknown = (topic_id, b"?" * 16) if version >= 10 else (topic, f"not-{topic}")
        _, rows = fetch_offsets(connection, group, {named: [4], unknown: [0]}, version)
        unknown_topic = (-1, -1, "", UNKNOWN_TOPIC_ID if version >= 10 else NONE)
        assert rows == {(named, 4): NO_SUCH_PARTITION, (unknown, 0): unknown_topic}

    def test_a_group_without_an_id_may_commit_and_fetch(self, start_broker: StartBroker, topic: str) -> None:
        """On a broker of its own: such a group cannot be deleted, and other tests want none."""
        with connect(start_broker()) as connection:
            metadata(connection, topic)
            assert commit(connection, "", topic, {0: 3}) == {0: NONE}
            assert committed_offset(connection, "", topic) == 3

    def test_commits_of_a_deleted_topic_are_not_those_of_the_next_one(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes
    ) -> None:
        commit(connection, group, topic, {0: 3})
        connection.send_for(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000), DeleteTopicsResponse, 5)
        assert metadata(connection, topic).topics[0].topic_id != topic_id
        assert committed_offset(connection, group, topic) == -1
        assert fetch_offsets(connection, group, None) == (NONE, {})


class TestRefusedCommits:
    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    def test_a_bad_partition_does_not_stop_the_others(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        named = topic_id if version >= 10 else topic
        done = commit(connection, group, named, {0: 1, 4: 1, -1: 1}, version)
        assert done == {0: NONE, 4: UNKNOWN_TOPIC_OR_PARTITION, -1: UNKNOWN_TOPIC_OR_PARTITION}
        assert committed_offset(connection, group, topic) == 1

    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    def test_a_topic_that_does_not_exist_makes_no_group(
        self, connection: BrokerConnection, group: str, topic: str, version: int
    ) -> None:
        named = b"?" * 16 if version >= 10 else topic
        missing = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC_OR_PARTITION
        assert commit(connection, group, named, {0: 1}, version) == {0: missing}
        assert group not in members.list_groups(connection)

    def test_metadata_over_4096_bytes_is_refused_and_may_be_absent(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes
    ) -> None:
        assert commit(connection, group, topic, {0: 1}, metadata="x" * 4097) == {0: members.METADATA_TOO_LARGE}
        assert commit(connection, group, topic, {0: 1}, metadata="x" * 4096) == {0: NONE}
        assert commit(connection, group, topic, {1: 1}, metadata=None) == {1: NONE}
        _, rows = fetch_offsets(connection, group, {topic: [1]})
        assert rows[topic, 1] == (1, -1, "", NONE)

    @pytest.mark.parametrize("version", COMMIT_VERSIONS)
    def test_a_generation_of_a_group_that_does_not_exist(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes, version: int
    ) -> None:
        named = topic_id if version >= 10 else topic
        done = commit(connection, group, named, {0: 1}, version, member_id="somebody", generation=1)
        assert done == {0: members.GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION}

    @pytest.mark.parametrize("version", range(2, 10))
    def test_only_members_of_this_generation_may_commit(
        self, connection: BrokerConnection, member: Member, topic: str, topic_id: bytes, version: int
    ) -> None:
        member.form()
        assert member.commit(topic, {0: 1}, version) == {0: NONE}
        assert commit(connection, member.group, topic, {0: 2}, version) == {0: UNKNOWN_MEMBER_ID}
        member.generation += 1
        assert member.commit(topic, {0: 2}, version) == {0: ILLEGAL_GENERATION}
        member.id, member.generation = "nobody", member.generation - 1
        assert member.commit(topic, {0: 2}, version) == {0: UNKNOWN_MEMBER_ID}
        assert committed_offset(connection, member.group, topic) == 1

    def test_while_members_join_again_commits_count_and_while_they_wait_for_the_assignment_they_do_not(
        self, groups_broker: BrokerProcess, connection: BrokerConnection, member: Member, topic: str, topic_id: bytes
    ) -> None:
        with Member(groups_broker, member.group) as other:
            form(member, other)
            other.protocols = {"range": b"changed"}
            other.ask_join()
            wait_until(lambda: member.heartbeat() == members.REBALANCE_IN_PROGRESS, "it was not told to join again")
            assert member.commit(topic, {0: 1}) == {0: NONE}, "PreparingRebalance"
            assert member.join().error_code == other.joined().error_code == NONE
            assert member.commit(topic, {0: 2}) == {0: members.REBALANCE_IN_PROGRESS}, "CompletingRebalance"
            assert committed_offset(connection, member.group, topic) == 1

    def test_what_the_group_refuses_does_not_hide_a_partition_that_does_not_exist(
        self, member: Member, topic: str, topic_id: bytes
    ) -> None:
        member.form()
        member.generation += 1
        assert member.commit(topic, {0: 1, 9: 1}) == {0: ILLEGAL_GENERATION, 9: UNKNOWN_TOPIC_OR_PARTITION}

    def test_a_static_member_that_was_replaced_is_fenced(
        self, groups_broker: BrokerProcess, group: str, topic: str, topic_id: bytes
    ) -> None:
        with (
            Member(groups_broker, group, instance_id="till-1") as before,
            Member(groups_broker, group, instance_id="till-1") as after,
        ):
            before.form()
            after.join()
            assert before.commit(topic, {0: 1}) == {0: members.FENCED_INSTANCE_ID}
            assert after.commit(topic, {0: 1}) == {0: NONE}


class TestOffsetDelete:
    def test_offsets_of_an_empty_group_go(
        self, connection: BrokerConnection, group: str, topic: str, topic_id: bytes
    ) -> None:
        commit(connection, group, topic, {0: 1, 1: 2})
        deleted = members.delete_offsets(connection, group, topic, 0, 2, 9)
        assert deleted == (NONE, {0: NONE, 2: NONE, 9: UNKNOWN_TOPIC_OR_PARTITION})
        assert fetch_offsets(connection, group, None)[1] == {(topic, 1): (2, -1, "", NONE)}

    def test_a_group_that_does_not_exist(self, connection: BrokerConnection, group: str, topic: str) -> None:
        assert members.delete_offsets(connection, group, topic, 0) == (members.GROUP_ID_NOT_FOUND, {})

    def test_topics_that_are_read_keep_theirs(
        self, connection: BrokerConnection, member: Member, topic: str, topic_id: bytes
    ) -> None:
        member.protocols = {"range": members.subscription(topic)}
        member.form()
        member.commit(topic, {0: 1})
        assert members.delete_offsets(connection, member.group, topic, 0) == (NONE, {0: members.SUBSCRIBED})
        assert committed_offset(connection, member.group, topic) == 1

    def test_a_group_of_another_type_keeps_all(
        self, connection: BrokerConnection, member: Member, topic: str, topic_id: bytes
    ) -> None:
        member.protocol_type = "connect"
        member.join()
        assert members.delete_offsets(connection, member.group, topic, 0)[0] == members.NON_EMPTY_GROUP


class TestRebalanceKeepsOffsets:
    def test_the_next_generation_reads_on_where_the_last_one_committed(
        self, groups_broker: BrokerProcess, connection: BrokerConnection, member: Member, topic: str, topic_id: bytes
    ) -> None:
        with Member(groups_broker, member.group) as other:
            form(member, other)
            assert other.commit(topic, {1: 11}) == {1: NONE}
            rebalance(member, other)
            assert committed_offset(connection, member.group, topic, 1) == 11
            member.leave()
            other.leave()
            assert committed_offset(connection, member.group, topic, 1) == 11
