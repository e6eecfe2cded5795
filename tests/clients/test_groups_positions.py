"""Real clients move about in their partitions: commits by hand, seek, rewind, pause, and `assign` with a group id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.members import committed_offset, fetch_offsets, state_of
from tests.broker.peers import batch_of, connect, metadata, produce
from tests.broker_process import BrokerProcess
from tests.clients.group_member import MEMBERS, GroupMember, Place

RECORDS = 50
SETTINGS: dict[str, Any] = {"session.timeout.ms": 6_000, "enable.auto.commit": False}
ALL = [Place(0, offset) for offset in range(RECORDS)]


@pytest.fixture
def full_topic(groups_broker: BrokerProcess, topic: str) -> str:
    """A topic with records in partitions 0 and 1."""
    with connect(groups_broker) as connection:
        metadata(connection, topic)
        for partition in (0, 1):
            produce(connection, topic, {partition: batch_of(*[b"x"] * RECORDS)})
    return topic


@pytest.fixture(params=MEMBERS)
def client(request: pytest.FixtureRequest) -> type[GroupMember]:
    return MEMBERS[request.param]


@pytest.fixture
def member(
    client: type[GroupMember], groups_broker: BrokerProcess, group: str, full_topic: str
) -> Iterator[GroupMember]:
    found = client(groups_broker.address, group, full_topic, SETTINGS)
    yield found
    found.leave()


def test_a_commit_by_hand_is_where_the_group_reads_on_and_keeps_its_note(
    client: type[GroupMember], member: GroupMember, groups_broker: BrokerProcess, group: str, full_topic: str
) -> None:
    assert len(member.read(2 * RECORDS)) == 2 * RECORDS
    member.commit_at(0, 20, "half-way")
    member.commit_at(1, RECORDS, "")
    with connect(groups_broker) as connection:
        _, rows = fetch_offsets(connection, group, {full_topic: [0]})
        offset, _, note, _ = rows[full_topic, 0]
        assert (offset, (note or "").rstrip("\0")) == (20, "half-way"), "confluent-kafka sends C's final zero as well"
    assert (member.committed(0), member.committed(1)) == (20, RECORDS)
    member.leave()
    again = client(groups_broker.address, group, full_topic, SETTINGS)
    assert again.read(RECORDS - 20) == ALL[20:]
    again.leave()


def test_seek_and_rewind_read_again_whatever_was_committed(member: GroupMember) -> None:
    member.read(2 * RECORDS)
    member.commit()
    member.seek(0, 30)
    assert member.read(RECORDS - 30) == ALL[30:]
    member.seek(0, 0)
    assert member.read(RECORDS) == ALL
    assert member.committed(0) == RECORDS, "reading again moves no commit"


def test_a_paused_partition_waits_and_goes_on_where_it_was(member: GroupMember) -> None:
    member.read(2 * RECORDS)
    member.pause(0)
    member.seek(0, 40)
    member.seek(1, 40)
    assert {place.partition for place in member.read(10)} == {1}
    member.resume(0)
    assert member.read(10) == ALL[40:]


def test_assign_with_a_group_id_commits_without_joining(
    client: type[GroupMember], groups_broker: BrokerProcess, group: str, full_topic: str
) -> None:
    loner = client(groups_broker.address, group, full_topic, SETTINGS, subscribes=False)
    try:
        loner.assign(0)
        assert loner.read(RECORDS) == ALL
        loner.commit()
        assert (loner.committed(0), loner.committed(1)) == (RECORDS, None)
        with connect(groups_broker) as connection:
            assert committed_offset(connection, group, full_topic) == RECORDS
            assert state_of(connection, group) == "Empty"
    finally:
        loner.leave()


def test_a_partition_that_does_not_exist_has_no_commit(member: GroupMember) -> None:
    member.read(2 * RECORDS)
    assert member.committed(99) is None


def test_a_group_that_is_new_starts_where_auto_offset_reset_says(
    client: type[GroupMember], groups_broker: BrokerProcess, group: str, full_topic: str
) -> None:
    settings = {**SETTINGS, "auto.offset.reset": "latest"}
    latest = client(groups_broker.address, group, full_topic, settings)
    try:
        with connect(groups_broker) as connection:
            found: list[Place] = []
            while not found:
                found = latest.poll()
                produce(connection, full_topic, {0: batch_of(b"new")})
        assert min(found).offset >= RECORDS
    finally:
        latest.leave()
