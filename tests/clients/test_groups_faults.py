"""Members and brokers that die, with real clients: every record is processed, and what was committed is not again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from signal import SIGCONT, SIGSTOP
from typing import Any

import confluent_kafka
import pytest

from tests.broker.members import committed_offset
from tests.broker.peers import batch_of, connect, metadata, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.clients.group_member import MEMBERS, Place
from tests.clients.group_process import Diary, MemberProcess, MemberThread
from tests.conftest import StartBroker

PARTITIONS = 4
RECORDS = 100
SETTINGS: dict[str, Any] = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200, "enable.auto.commit": False}
CREW = 10

StartProcess = Callable[[str], MemberProcess]


@pytest.fixture
def start(groups_broker: BrokerProcess, group: str, topic: str) -> Iterator[StartProcess]:
    """Starts a member of the test's group as a process."""
    started: list[MemberProcess] = []

    def start_member(client: str) -> MemberProcess:
        started.append(MemberProcess(client, groups_broker.address, group, topic, SETTINGS))
        return started[-1]

    with connect(groups_broker) as connection:
        metadata(connection, topic)
    yield start_member
    for member in started:
        member.kill()


def fill(broker: BrokerProcess, topic: str, partitions: int = PARTITIONS) -> set[Place]:
    with connect(broker) as connection:
        ends = [
            produce(connection, topic, {p: batch_of(*[b"x"] * RECORDS)})[p].base_offset + RECORDS
            for p in range(partitions)
        ]
    return {Place(partition, offset) for partition, end in enumerate(ends) for offset in range(end)}


def wait_to_share(diaries: Sequence[Diary], partitions: int = PARTITIONS) -> None:
    def shared() -> bool:
        shares = [diary.assigned for diary in diaries]
        return all(shares) and sorted(p for share in shares for p in share) == list(range(partitions))

    wait_until(shared, f"not shared: {[diary.entries[-3:] for diary in diaries]}", 60)


def wait_for_all(diaries: Sequence[Diary], expected: set[Place]) -> None:
    def done() -> bool:
        return {place for diary in diaries for place in diary.processed} >= expected

    wait_until(done, "records were not processed", 60)


@pytest.mark.parametrize("client", MEMBERS)
def test_a_member_that_is_killed_is_replaced_and_nothing_that_it_committed_is_processed_again(
    groups_broker: BrokerProcess, start: StartProcess, topic: str, client: str
) -> None:
    victim, heir = start(client), start(client)
    wait_to_share([victim, heir])
    wait_for_all([victim, heir], fill(groups_broker, topic))
    wait_until(lambda: victim.committed == set(victim.processed), "it did not commit")
    victim.kill()
    everything = fill(groups_broker, topic)
    wait_for_all([victim, heir], everything)
    wait_until(lambda: heir.assigned == set(range(PARTITIONS)), "it did not take over")
    assert not victim.committed & set(heir.processed)


@pytest.mark.parametrize("client", MEMBERS)
def test_a_member_that_stood_still_past_its_session_is_fenced_and_its_work_is_done_by_the_other(
    groups_broker: BrokerProcess, start: StartProcess, group: str, topic: str, client: str
) -> None:
    sleeper, heir = start(client), start(client)
    wait_to_share([sleeper, heir])
    own = sleeper.assigned
    wait_for_all([sleeper, heir], fill(groups_broker, topic))
    sleeper.send_signal(SIGSTOP)
    everything = fill(groups_broker, topic)
    of_the_sleeper = {place for place in everything if place.partition in own}
    wait_for_all([heir], everything - set(sleeper.processed))
    with connect(groups_broker) as connection:
        wait_until(
            lambda: all(committed_offset(connection, group, topic, p) == 2 * RECORDS for p in range(PARTITIONS)),
            "the heir did not commit",
        )
        sleeper.send_signal(SIGCONT)
        wait_to_share([sleeper, heir])
        assert all(committed_offset(connection, group, topic, p) == 2 * RECORDS for p in range(PARTITIONS))
    stale = set(sleeper.processed) & of_the_sleeper - sleeper.committed
    assert not stale or sleeper.failures, "what it processed late it could not commit"


class Flow:
    """Producers' side of a group at work: records keep coming to all partitions, across the broker's restart."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._broker, self._topic, self._partitions = broker, topic, partitions
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self._broker.address, "linger.ms": 5})
        while not self._stop.wait(0.01):
            for partition in range(self._partitions):
                producer.produce(self._topic, b"x", partition=partition)
            self.sent += self._partitions
            producer.poll(0)
        assert producer.flush(60) == 0

    def stop(self) -> int:
        """How many records there are."""
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        return self.sent


def test_a_broker_that_is_killed_under_ten_members_at_work_comes_back_and_nobody_rebalances(
    start_broker: StartBroker, group: str, topic: str
) -> None:
    broker = start_broker(
        durability="always", default_partitions=CREW, group_initial_rebalance_delay_ms=500, log_level="warning"
    )
    with connect(broker) as connection:
        metadata(connection, topic)
    settings = {**SETTINGS, "session.timeout.ms": 30_000, "reconnect.backoff.max.ms": 500}
    crew = [MemberThread("confluent-kafka", broker.address, group, topic, settings) for _ in range(CREW)]
    wait_to_share(crew, CREW)
    flow = Flow(broker, topic, CREW)
    wait_until(lambda: all(len(member.committed) > 100 for member in crew), "not everybody is at work", 60)
    rebalances = [member.rebalances for member in crew]
    broker.kill()
    committed = [set(member.committed) for member in crew]
    broker.start()
    before = [len(member.committed) for member in crew]
    wait_until(
        lambda: all(len(m.committed) > known for m, known in zip(crew, before, strict=True)), "not back at work", 60
    )
    sent = flow.stop()
    everything = {Place(partition, offset) for partition in range(CREW) for offset in range(sent // CREW)}
    wait_for_all(crew, everything)
    assert [member.rebalances for member in crew] == rebalances
    with connect(broker) as connection:
        for member, known in zip(crew, committed, strict=True):
            (partition,) = member.assigned
            assert committed_offset(connection, group, topic, partition) > max(place.offset for place in known)
    for member in crew:
        member.ask_to_stop()
    for member in crew:
        member.stop()
    assert len(everything) <= sum(len(member.processed) for member in crew)
