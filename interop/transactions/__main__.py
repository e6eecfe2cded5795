"""Asks Headrace and a node of Apache Kafka the same about transactions, and compares the answers.

The broker that is given is not used: both systems are started here, with a short time-out for transactions.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.kafka import KafkaNode, version
from tests.broker_process import BrokerProcess, wait_until

from headrace.client.admin import Admin
from headrace.client.cluster import COORDINATOR_OF_TRANSACTIONS, Cluster
from headrace.client.connection import BrokerConnection
from interop.report import Checks
from interop.transactions.asker import Answer, Asker
from interop.transactions.scenes import SCENES, Scene

PROPERTIES = """
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
transaction.state.log.num.partitions=1
offsets.topic.num.partitions=1
"""
PARTITIONS = 2


def compare(scene: Scene, kafka: tuple[str, int], headrace: tuple[str, int]) -> None:
    """Plays a scene with both; fails with the first answers that differ."""
    expected, found = played(scene, *kafka), played(scene, *headrace)
    differing = [(what, answer, found.get(what)) for what, answer in expected.items() if found.get(what) != answer]
    assert not differing, "; ".join(f"{what}: Kafka {kafka}, Headrace {mine}" for what, kafka, mine in differing)
    assert found.keys() == expected.keys()


def played(scene: Scene, host: str, port: int) -> dict[str, Answer | int | str]:
    topic = f"scene-{scene.__name__.replace('_', '-')}"
    with Cluster(f"{host}:{port}") as cluster:
        Admin(cluster).create_topic(topic, PARTITIONS, {}, replication_factor=1)
    with BrokerConnection(host, port) as connection:
        asker = Asker(connection, topic)
        wait_until(lambda: [asker.offset(-2, 0, number) for number in range(PARTITIONS)] == [0, 0], "no leaders")
        return dict(scene(asker))


def wait_for_coordinators(host: str, port: int) -> None:
    """Kafka makes its topics of transactions and of offsets when somebody looks for their coordinators."""
    with Cluster(f"{host}:{port}") as cluster:
        cluster.retrying(lambda: cluster.coordinator("group"))
        cluster.retrying(lambda: cluster.coordinator("mover", COORDINATOR_OF_TRANSACTIONS))


def main() -> None:
    checks = Checks(version())
    with tempfile.TemporaryDirectory(prefix="headrace-interop-transactions-") as name:
        node = KafkaNode(Path(name) / "kafka", PROPERTIES)
        broker = BrokerProcess(Path(name) / "data")
        node.start()
        try:
            broker.start()
            both = ("127.0.0.1", node.port), (broker.host, broker.port)
            wait_for_coordinators("127.0.0.1", node.port)
            for scene in SCENES:
                checks.check((scene.__doc__ or "").rstrip("."), lambda scene=scene: compare(scene, *both))  # type: ignore[misc]
        finally:
            broker.end()
            node.stop()
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
