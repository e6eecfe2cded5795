"""Copiers in both versions of the protocol, while nodes are killed and frozen and the store is killed.

Nothing may be lost, doubled, torn or left open. With `always` the store loses nothing that it has answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from signal import Signals
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.client import Admin, Cluster
from tests.broker_process import RedisProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.copiers import GROUP, LATEST_OF_EACH, OUTPUT, PARTITIONS, SOURCE, Copier, Watcher, stable_ends

_PATIENCE_S = 60.0
_FOR_EVER = {"retention.ms": "-1"}
_EAGER = {"compaction_check_interval_ms": 100, "store_wait_ms": 1_000, "store_timeout_ms": 2_000}


class Copying:
    """Copiers on two nodes, and what became of what they did."""

    def __init__(self, start_broker: StartBroker, store: RedisProcess) -> None:
        self.store = store
        self.anomalies: Counter[str] = Counter()
        self.nodes = [start_broker(redis=store.url, node_id=id, node_lease_ms=2_000, **_EAGER) for id in range(2)]
        self.addresses = ",".join(node.address for node in self.nodes)
        compact: dict[str, str | None] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        with Cluster(self.addresses) as cluster:
            for topic in (SOURCE, OUTPUT):
                Admin(cluster).create_topic(topic, PARTITIONS, _FOR_EVER)
            Admin(cluster).create_topic(LATEST_OF_EACH, 1, compact)
        self.copiers = [Copier(self.addresses, n, 1 + n % 2, self.anomalies) for n in range(PARTITIONS)]
        self.watcher = Watcher(self.addresses, self.anomalies)
        for thread in (*self.copiers, self.watcher):
            thread.start()

    def goes_on(self) -> None:
        """Returns once every copier has committed something more."""
        goals = [copier.commits + 3 for copier in self.copiers]
        wait_until(
            lambda: all(copier.commits >= goal for copier, goal in zip(self.copiers, goals, strict=True)),
            f"nothing is committed: {[copier.commits for copier in self.copiers]}",
            _PATIENCE_S,
        )

    def ends(self) -> None:
        """Everything stops, and everything is checked."""
        self.watcher.ended.set()
        for copier in self.copiers:
            copier.ended.set()
        for thread in (*self.copiers, self.watcher):
            thread.join(_PATIENCE_S)
        with Cluster(self.addresses) as cluster:
            # What a copier has left open is aborted when its time is over.
            wait_until(
                lambda: stable_ends(cluster) == stable_ends(cluster, committed=False), "something hangs", _PATIENCE_S
            )
        positions = [self._committed(number) for number in range(PARTITIONS)]
        for number in range(PARTITIONS):
            found = [record.value() for record in self._read(OUTPUT, number)]
            for copier, position in zip(self.copiers, positions, strict=True):
                mine = [value for value in found if value.startswith(b"%d-" % copier.number)]
                assert mine == [copier.value(at) for at in range(position)]
        latest = {record.key(): record.value() for record in self._read(LATEST_OF_EACH, 0)}
        assert latest == {
            b"%d" % copier.number: copier.value(position - 1)
            for copier, position in zip(self.copiers, positions, strict=True)
        }
        assert not +self.anomalies

    def _committed(self, number: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.addresses, "group.id": GROUP})
        found: int = consumer.committed([TopicPartition(SOURCE, number)], _PATIENCE_S)[0].offset
        consumer.close()
        return found

    def _read(self, topic: str, number: int) -> list[Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.addresses,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0)])
        found: list[Any] = []
        while True:
            message: Any = consumer.poll(_PATIENCE_S)
            assert message is not None
            if message.error() is None:
                found.append(message)
            elif message.error().name() == "_PARTITION_EOF":
                consumer.close()
                return found


def _kill_nodes(copying: Copying) -> None:
    for node in copying.nodes:
        node.kill()
        node.start()


def _freeze(copying: Copying) -> None:
    """Past its lease; the others go on."""
    node = copying.nodes[1]
    node.send_signal(Signals.SIGSTOP)
    try:
        copying.goes_on()
    finally:
        node.send_signal(Signals.SIGCONT)


def _kill_store(copying: Copying) -> None:
    copying.store.stop(Signals.SIGKILL)
    copying.store.start()


def _kill_everything(copying: Copying) -> None:
    for node in copying.nodes:
        node.kill()
    _kill_store(copying)
    for node in copying.nodes:
        node.start()


FAULTS: dict[str, Callable[[Copying], None]] = {
    "nodes are killed": _kill_nodes,
    "a node is frozen past its lease": _freeze,
    "the store is killed": _kill_store,
    "everything is killed": _kill_everything,
}


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_copies_are_exact(start_broker: StartBroker, start_redis: StartRedis, fault: str) -> None:
    copying = Copying(start_broker, start_redis("always"))
    copying.goes_on()
    for _ in range(3):
        FAULTS[fault](copying)
        copying.goes_on()
    copying.ends()
