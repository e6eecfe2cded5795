"""A broker whose store has lost its replicas, and gets them back: its own work waits, and says so in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from headrace.wire.errors import ErrorCode
from tests.broker.peers import connect, fetch
from tests.broker_process import BrokerProcess, wait_until
from tests.clients.client import DeliveryFailed, Sent
from tests.clients.confluent_adapter import ConfluentKafka
from tests.conftest import StartBroker
from tests.replicated import ReplicatedServers, replicated

NOT_ENOUGH = 19
ONE_TRY = {"acks": "all", "retries": 0}
EAGER: dict[str, object] = {"retention_check_interval_ms": 50, "compaction_check_interval_ms": 50}
TOPICS: dict[str, dict[str, str]] = {
    "kept": {},
    "latest": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}

client = ConfluentKafka()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ReplicatedServers]:
    with replicated(tmp_path / "servers", durability="always") as started:
        yield started


def send(broker: BrokerProcess, topic: str) -> list[int]:
    return client.produce(broker.address, topic, [Sent(0, b"key", b"value")], ONE_TRY)


def test_work_that_waits_for_replicas_is_logged_once_and_without_a_traceback(
    start_broker: StartBroker, servers: ReplicatedServers
) -> None:
    broker = start_broker(redis=servers.url, min_insync_replicas=2, replica_timeout_ms=1_000, **EAGER)
    for topic, configs in TOPICS.items():
        client.create_topic(broker.address, topic, 1, configs)
        send(broker, topic)
    broker.kill()
    servers.replicas[0].kill()
    servers.primary.kill()
    servers.primary.start()
    broker.start()  # the log may have lost its end: the leader epoch rises, which has to be on a replica
    for topic in TOPICS:
        with pytest.raises(DeliveryFailed) as refusal:
            send(broker, topic)
        assert refusal.value.code == NOT_ENOUGH
        with connect(broker) as connection:
            answer = fetch(connection, topic, {0: 0})[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for work in ("retention", "compaction"):
        waits_for_line(broker, f"{work} is postponed")
    servers.attach(servers.replicas[0])
    for topic in TOPICS:
        wait_until(partial(is_taken, broker, topic), f"{topic} takes no record")
    for work in ("retention", "compaction"):
        waits_for_line(broker, f"{work} goes on")
        assert broker.log.count(f"{work} is postponed") == broker.log.count(f"{work} goes on")
    assert "Traceback" not in broker.log


def waits_for_line(broker: BrokerProcess, line: str) -> None:
    wait_until(lambda: line in broker.log, f"not logged: {line}")


def is_taken(broker: BrokerProcess, topic: str) -> bool:
    try:
        send(broker, topic)
    except DeliveryFailed:
        return False
    return True


def test_nodes_that_connected_before_and_after_the_first_replica_serve_one_transaction(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """With its first replica a server takes another replication id, by which later connections know it."""
    with replicated(tmp_path / "servers", replicas=0) as servers:
        nodes = [start_broker(redis=servers.url, node_id=1)]
        servers.add_replica()
        nodes.append(start_broker(redis=servers.url, node_id=2))
        client.create_topic(nodes[0].address, "orders", 8, {"min.insync.replicas": "2"})
        addresses = ",".join(node.address for node in nodes)
        producer = confluent_kafka.Producer({"bootstrap.servers": addresses, "transactional.id": "one"})
        producer.init_transactions(30)
        for _ in range(2):
            producer.begin_transaction()
            for number in range(8):
                producer.produce("orders", b"value", partition=number)
            producer.commit_transaction(30)
