"""The event loop goes on whatever is inside the batches that clients send, or have it search.

What counts is the broker's own CPU time between a heartbeat and its answer, all of its threads together: on a busy
machine everything takes longer, and no broker can help that.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client.connection import BrokerConnection
from headrace.client.errors import BrokerUnreachable
from headrace.wire.compression import Compression
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.produce import ProduceResponse
from headrace.wire.records import Record, encode_batch
from tests.broker.bombs import CODECS, MIB, NOW, bombs_of
from tests.broker.members import Member
from tests.broker.peers import (
    PRODUCE_BY_NAME,
    IdempotentProducer,
    connect,
    create_topic,
    fetch,
    produce,
    produce_request,
    records_of,
)
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

pytestmark = pytest.mark.xdist_group("bombs")
"""In one worker: they take seconds to make."""
ANSWERED_WITHIN_CPU_S = 0.25
ROUNDS = 1
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "recompressed": {"compression.type": "gzip"},
    "recompressed-lz4": {"compression.type": "lz4"},
    "compacted": {"cleanup.policy": "compact"},
    "stream": {"headrace.format": "stream"},
}
LOOKS_INSIDE = [pytest.param(configs, id=name) for name, configs in TOPICS.items() if configs]


@pytest.fixture(scope="module")
def bombs() -> dict[Compression, list[bytes]]:
    return {codec: list(bombs_of(codec)) for codec in CODECS}


@pytest.fixture
def victim(start_broker: StartBroker) -> BrokerProcess:
    """With a long lease: a machine that is busy for longer than a short one is not what is tested here."""
    return start_broker(group_initial_rebalance_delay_ms=0, node_lease_ms=60_000)


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Attacker(threading.Thread):
    """A client that does one thing again and again, on a connection of its own, until the broker is killed."""

    def __init__(self, broker: BrokerProcess, attack: Callable[[BrokerConnection], object]) -> None:
        super().__init__()
        self.rounds = 0
        self._connection = connect(broker, timeout_s=120)
        self._attack = attack

    def run(self) -> None:
        with contextlib.suppress(BrokerUnreachable):
            while True:
                self._attack(self._connection)
                self.rounds += 1


def assert_heartbeats_are_answered(broker: BrokerProcess, attacks: list[Callable[[BrokerConnection], object]]) -> None:
    """One heartbeat after the other, until each attacker has done everything that it does."""
    attackers = [Attacker(broker, attack) for attack in attacks]
    for attacker in attackers:
        attacker.start()
    try:
        with Member(broker, "others").form() as member:
            while not all(attacker.rounds >= ROUNDS for attacker in attackers):
                before_s = cpu_s(broker.pid)
                assert member.heartbeat() == 0
                assert cpu_s(broker.pid) - before_s <= ANSWERED_WITHIN_CPU_S
                assert all(attacker.is_alive() for attacker in attackers)
    finally:
        broker.kill()
        for attacker in attackers:
            attacker.join()


@pytest.mark.parametrize("kind", TOPICS)
def test_a_heartbeat_is_answered_while_bombs_arrive(
    victim: BrokerProcess, bombs: dict[Compression, list[bytes]], kind: str
) -> None:
    with connect(victim) as connection:
        create_topic(connection, kind, 1, TOPICS[kind] | {"retention.bytes": "100000000"})

    def send(some: list[bytes]) -> Callable[[BrokerConnection], object]:
        requests = [produce_request(kind, {0: bomb}) for bomb in some]
        return lambda connection: connection.send_pipelined(requests, PRODUCE_BY_NAME)

    assert_heartbeats_are_answered(victim, [send(bombs[codec]) for codec in CODECS])


def test_a_heartbeat_is_answered_while_bombs_arrive_whose_times_have_to_be_found(victim: BrokerProcess) -> None:
    with connect(victim) as connection:
        create_topic(connection, "untimed", 1)

    def send(codec: Compression) -> Callable[[BrokerConnection], object]:
        requests = [produce_request("untimed", {0: bomb}) for bomb in bombs_of(codec, max_timestamp=0)]
        return lambda connection: connection.send_pipelined(requests, PRODUCE_BY_NAME)

    assert_heartbeats_are_answered(victim, [send(codec) for codec in CODECS])


@pytest.mark.parametrize("configs", LOOKS_INSIDE)
def test_a_heartbeat_is_answered_while_one_request_brings_many_small_bombs(
    victim: BrokerProcess, configs: dict[str, str]
) -> None:
    """Each is so small that it is no work for a thread: 127 KB in one record, or 2,000 records."""
    batches = [
        encode_batch([Record(0, NOW, b"k", bytes(127_000))], compression="zstd"),
        encode_batch([Record(n, NOW, b"k", None) for n in range(2_000)], compression="snappy"),
    ]
    with connect(victim) as connection:
        create_topic(connection, "many", 250, configs)
    request = produce_request("many", {number: batches[number % 2] for number in range(250)})

    def send(connection: BrokerConnection) -> None:
        connection.send_for(request, ProduceResponse, PRODUCE_BY_NAME, extra_wait_s=120)

    assert_heartbeats_are_answered(victim, [send] * 2)


def test_a_heartbeat_is_answered_while_bombs_are_searched_by_time(
    victim: BrokerProcess, bombs: dict[Compression, list[bytes]]
) -> None:
    stored = [bomb for codec in CODECS for bomb in bombs[codec]]
    with connect(victim) as connection:
        create_topic(connection, "plain", len(stored))
        assert all(answer.error_code == 0 for answer in produce(connection, "plain", dict(enumerate(stored))).values())
    asked = [ListOffsetsPartition(partition_index=number, timestamp=NOW + 1) for number in range(len(stored))]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="plain", partitions=asked)])

    def search(connection: BrokerConnection) -> None:
        connection.send_for(request, ListOffsetsResponse, 7, extra_wait_s=120)

    assert_heartbeats_are_answered(victim, [search] * 2)


@pytest.mark.parametrize("configs", LOOKS_INSIDE)
def test_batches_keep_their_order_while_one_of_them_is_looked_into(
    broker: BrokerProcess, topic: str, configs: dict[str, str]
) -> None:
    """An idempotent producer with several requests under way: large and small ones."""
    sizes = [10 * MIB, 1, 10 * MIB, 1, 1]
    with connect(broker) as connection:
        create_topic(connection, topic, 1, configs)
        producer = IdempotentProducer(connection, topic)
        requests = [
            produce_request(
                topic,
                {
                    0: encode_batch(
                        [Record(0, NOW, b"%d" % sequence, bytes(size))],
                        compression="zstd",
                        producer_id=producer.id,
                        producer_epoch=producer.epoch,
                        base_sequence=sequence,
                    )
                },
            )
            for sequence, size in enumerate(sizes)
        ]
        answers = connection.send_pipelined(requests, PRODUCE_BY_NAME)
        for answer in answers:
            assert isinstance(answer, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0
        found: list[Record] = []
        while len(found) < len(sizes):
            found += records_of(fetch(connection, topic, {0: found[-1].offset + 1 if found else 0})[0])
    assert [record.key for record in found] == [b"%d" % sequence for sequence in range(len(sizes))]
