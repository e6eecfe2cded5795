"""The primary is killed with the broker, so that nobody has a cache to restore from, and its replica takes over.

With min.insync.replicas=2 the replica has every record that was acknowledged.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from signal import Signals

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from tests.broker.peers import connect, create_topic
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.replicated import ReplicatedServers, replicated

TOPICS = {"orders": {}, "clicks": {"headrace.format": "stream"}}
ACKNOWLEDGED_FIRST = 300


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers", durability="always") as started:
        yield started


class Producing:
    """An idempotent producer in a thread; what it was told of each record."""

    def __init__(self, address: str, first: int) -> None:
        self.told: dict[tuple[str, int], bytes] = {}
        self.number = first
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "acks": "all", "linger.ms": 1, "message.timeout.ms": 60_000}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for topic in TOPICS:
                self._producer.produce(topic, b"%d" % self.number, partition=0, on_delivery=self._answered)
            self.number += 1
            self._producer.poll(0.001)

    def _answered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            offset = message.offset()
            assert offset is not None
            self.told[message.topic() or "", offset] = message.value() or b""

    def stop(self) -> None:
        """Nothing is heard of what was not answered yet."""
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(0)


def kill_both_and_go_on(
    servers: ReplicatedServers,
    broker: BrokerProcess,
    start_broker: StartBroker,
    told: dict[tuple[str, int], bytes],
    *,
    lagging: bool,
) -> BrokerProcess:
    """One round; the broker that goes on, on the server that was the replica."""
    producing = Producing(broker.address, first=len(told))
    wait_until(lambda: len(producing.told) > ACKNOWLEDGED_FIRST, "nothing is acknowledged")
    if lagging:
        servers.freeze(servers.replicas[0])
        sent = producing.number
        wait_until(lambda: producing.number > sent + ACKNOWLEDGED_FIRST, "nothing more is sent")
    servers.primary.kill()
    broker.kill()
    producing.stop()
    if lagging:  # restarted, or it would still read what its socket holds
        servers.replicas[0].send_signal(Signals.SIGKILL)
        servers.replicas[0].stop()
        servers.replicas[0].start()
    told |= producing.told
    old, (replica, *_) = servers.primary, servers.replicas
    replica.ask("REPLICAOF", "NO", "ONE")
    servers.primary, servers.replicas = replica, [old]
    servers.attach(old)
    return start_broker(redis=servers.url)


def check_all_there(broker: BrokerProcess, told: dict[tuple[str, int], bytes]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "check"})
    try:
        ends = {topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1] for topic in TOPICS}
        consumer.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING) for topic in TOPICS])
        found: dict[tuple[str, int], bytes] = {}

        def is_read() -> bool:
            for message in consumer.consume(10_000, 0.2):
                assert message.error() is None
                found[message.topic() or "", message.offset() or 0] = message.value() or b""
            places = consumer.position([TopicPartition(topic, 0) for topic in TOPICS])
            return all(place.offset >= ends[place.topic] for place in places)

        wait_until(is_read, "the topics are not read to their ends", 60)
    finally:
        consumer.close()
    lost = {place: value for place, value in told.items() if found.get(place) != value}
    assert not lost, f"{len(lost)} of {len(told)} acknowledged records are gone: {sorted(lost)[:10]}"


def run_rounds(servers: ReplicatedServers, start_broker: StartBroker, rounds: int, *, lagging: bool = False) -> None:
    broker = start_broker(redis=servers.url, node_lease_ms=3_000)
    with connect(broker) as connection:
        for topic, configs in TOPICS.items():
            create_topic(connection, topic, 1, configs | {"min.insync.replicas": "2"})
    told: dict[tuple[str, int], bytes] = {}
    for _ in range(rounds):
        broker = kill_both_and_go_on(servers, broker, start_broker, told, lagging=lagging)
        check_all_there(broker, told)


def test_a_replica_that_takes_over_has_what_was_acknowledged(
    servers: ReplicatedServers, start_broker: StartBroker
) -> None:
    run_rounds(servers, start_broker, 1)


def test_a_replica_that_hung_lacks_only_what_was_not_acknowledged(
    servers: ReplicatedServers, start_broker: StartBroker
) -> None:
    run_rounds(servers, start_broker, 1, lagging=True)


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_replicas_that_take_over_again_and_again_have_what_was_acknowledged(
    servers: ReplicatedServers, start_broker: StartBroker
) -> None:
    run_rounds(servers, start_broker, 10)
