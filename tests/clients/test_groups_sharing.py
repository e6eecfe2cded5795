"""Real clients share a topic: alone and mixed, with every assignor, and every record is processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.broker.members import committed_offset
from tests.broker.peers import batch_of, connect, metadata, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.clients.group_member import MEMBERS, Place
from tests.clients.group_process import Diary, MemberThread

PARTITIONS = 4
RECORDS = 100
SETTINGS: dict[str, Any] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, "enable.auto.commit": False}

StartMember = Callable[..., MemberThread]


@pytest.fixture
def start(groups_broker: BrokerProcess, group: str, topic: str) -> Iterator[StartMember]:
    """Starts a member of the test's group; all leave at the end."""
    started: list[MemberThread] = []

    def start_member(client: str, *, commits: bool = True, **settings: Any) -> MemberThread:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        started.append(
            MemberThread(client, groups_broker.address, group, topic, {**SETTINGS, **named}, commits=commits)
        )
        return started[-1]

    with connect(groups_broker) as connection:
        metadata(connection, topic)
    yield start_member
    for member in started:
        member.ask_to_stop()
    for member in started:
        member.stop()


def fill(broker: BrokerProcess, topic: str) -> set[Place]:
    """Produces to every partition; all the records that the topic has now."""
    with connect(broker) as connection:
        ends = [
            produce(connection, topic, {p: batch_of(*[b"x"] * RECORDS)})[p].base_offset + RECORDS
            for p in range(PARTITIONS)
        ]
    return {Place(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}


def processed_by(diaries: Sequence[Diary]) -> list[Place]:
    return [place for diary in diaries for place in diary.processed]


def share_evenly(diaries: Sequence[Diary]) -> bool:
    """Every partition has one owner, and nobody has two more than somebody else."""
    shares = [diary.assigned for diary in diaries]
    sizes = [len(share) for share in shares]
    return sum(sizes) == PARTITIONS and set().union(*shares) == set(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


def wait_to_share(diaries: Sequence[Diary]) -> None:
    wait_until(lambda: share_evenly(diaries), f"not shared: {[diary.entries[-3:] for diary in diaries]}", 60)


def wait_for_all(diaries: Sequence[Diary], expected: set[Place]) -> None:
    wait_until(lambda: set(processed_by(diaries)) >= expected, "records were not processed", 60)


WITH_EACH_ASSIGNOR = [
    pytest.param(client, assignor, id=f"{client} {assignor}")
    for client, member in MEMBERS.items()
    for assignor in member.assignors
]


@pytest.mark.parametrize(("client", "assignor"), WITH_EACH_ASSIGNOR)
def test_two_members_of_one_client_share_and_the_one_that_stays_takes_over(
    groups_broker: BrokerProcess, start: StartMember, topic: str, client: str, assignor: str
) -> None:
    both = [start(client, partition_assignment_strategy=assignor) for _ in range(2)]
    wait_to_share(both)
    wait_for_all(both, fill(groups_broker, topic))
    assert all(diary.processed for diary in both)
    both[1].stop()
    wait_to_share(both[:1])
    everything = fill(groups_broker, topic)
    wait_for_all(both, everything)
    assert sorted(processed_by(both)) == sorted(everything), "each record once: all was committed before the change"
    assert [diary.failures for diary in both] == [[], []]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_of_different_clients_share(
    groups_broker: BrokerProcess, start: StartMember, topic: str, assignor: str
) -> None:
    everybody = [start(client, partition_assignment_strategy=assignor) for client in MEMBERS]
    wait_to_share(everybody)
    wait_for_all(everybody, fill(groups_broker, topic))
    assert all(diary.processed for diary in everybody)
    everybody[0].stop()
    wait_to_share(everybody[1:])
    everything = fill(groups_broker, topic)
    wait_for_all(everybody, everything)
    assert sorted(processed_by(everybody)) == sorted(everything)


def test_confluent_kafka_and_kafka_python_share_cooperatively(
    groups_broker: BrokerProcess, start: StartMember, topic: str
) -> None:
    first = start("confluent-kafka", partition_assignment_strategy="cooperative-sticky")
    wait_to_share([first])
    kept_before = first.assigned
    second = start("kafka-python", partition_assignment_strategy="cooperative-sticky")
    wait_to_share([first, second])
    revoked = {p for what, places in first.entries if what == "revoked" for p in places}
    assert revoked == kept_before - first.assigned, "only what moves is given up"
    wait_for_all([first, second], fill(groups_broker, topic))


@pytest.mark.parametrize("client", MEMBERS)
def test_automatic_commits_are_where_the_next_member_reads_on(
    groups_broker: BrokerProcess, start: StartMember, group: str, topic: str, client: str
) -> None:
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = start(client, commits=False, **automatic)
    expected = fill(groups_broker, topic)
    wait_for_all([first], expected)
    with connect(groups_broker) as connection:
        wait_until(
            lambda: all(committed_offset(connection, group, topic, p) == RECORDS for p in range(PARTITIONS)),
            "it did not commit by itself",
        )
    first.stop()
    second = start(client, commits=False, **automatic)
    everything = fill(groups_broker, topic)
    wait_for_all([second], everything - expected)
    assert sorted(second.processed) == sorted(everything - expected)


@pytest.mark.parametrize("client", MEMBERS)
def test_a_static_member_comes_back_to_its_partitions_and_nobody_else_notices(
    groups_broker: BrokerProcess, start: StartMember, topic: str, client: str
) -> None:
    others = [start(client, group_instance_id="till-1"), start(client, group_instance_id="till-2")]
    wait_to_share(others)
    stays, leaves = others
    before, own = stays.rebalances, leaves.assigned
    leaves.stop()
    again = start(client, group_instance_id="till-2")
    wait_until(lambda: again.assigned == own, f"it did not get {own} back", 60)
    expected = fill(groups_broker, topic)
    wait_for_all([stays, leaves, again], expected)
    assert stays.rebalances == before
