"""Copiers on several nodes, a group that reads what they write meanwhile, and what became of it all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from headrace.client import Admin, Cluster
from tests.broker_process import BrokerProcess, wait_until
from tests.faults.copiers import GROUP, LATEST_OF_EACH, OUTPUT, PARTITIONS, SOURCE, Copier, Watcher, stable_ends
from tests.faults.load import Load
from tests.faults.witnesses import Gaps, Group, Receiving, Sending

PATIENCE_S = 60.0
EAGER: Mapping[str, object] = {
    "compaction_check_interval_ms": 100,
    "store_wait_ms": 1_000,
    "store_timeout_ms": 2_000,
}
"""Settings of nodes that notice trouble, and compact, soon."""
_ABORTED = "a transaction was open when another server took over: it is aborted"
_FOR_EVER = {"retention.ms": "-1"}


class Copying:
    """They begin at once, and go on until `ends`."""

    def __init__(self, nodes: Sequence[BrokerProcess]) -> None:
        self.nodes = nodes
        self.anomalies: Counter[str] = Counter()
        self.addresses = ",".join(node.address for node in self.nodes)
        compact: dict[str, str | None] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        with Cluster(self.addresses) as cluster:
            for topic in (SOURCE, OUTPUT):
                Admin(cluster).create_topic(topic, PARTITIONS, _FOR_EVER)
            Admin(cluster).create_topic(LATEST_OF_EACH, 1, compact)
        self.copiers = [Copier(self.addresses, n, 1 + n % 2, self.anomalies) for n in range(PARTITIONS)]
        self.watcher = Watcher(self.addresses, self.anomalies)
        self.readers = Group("readers", self.addresses, [OUTPUT], members=2)
        for thread in (*self.copiers, self.watcher):
            thread.start()

    def goes_on(self) -> None:
        """Returns once every copier has committed something more."""
        goals = [copier.commits + 3 for copier in self.copiers]
        try:
            wait_until(
                lambda: all(copier.commits >= goal for copier, goal in zip(self.copiers, goals, strict=True)),
                "nothing is committed",
                PATIENCE_S,
            )
        except AssertionError as error:
            raise AssertionError([(copier.commits, copier.trouble) for copier in self.copiers]) from error

    def stop(self) -> None:
        self._stop_copiers()
        self.readers.stop()

    def _stop_copiers(self) -> None:
        for ended in (*(copier.ended for copier in self.copiers), self.watcher.ended):
            ended.set()
        for thread in (*self.copiers, self.watcher):
            thread.join(PATIENCE_S)

    def ends(self) -> None:
        """Everything stops, and everything is checked."""
        try:
            self._stop_copiers()
            self._check()
        finally:
            self.stop()

    def _check(self) -> None:
        with Cluster(self.addresses) as cluster:
            # What a copier has left open is aborted when its time is over.
            wait_until(
                lambda: stable_ends(cluster) == stable_ends(cluster, committed=False), "something hangs", PATIENCE_S
            )
        positions = [self._committed(number) for number in range(PARTITIONS)]
        for number in range(PARTITIONS):
            records = {record.offset(): record.value() for record in self._read(OUTPUT, number)}
            self.readers.gets((OUTPUT, number), records)
            found = list(records.values())
            for copier, position in zip(self.copiers, positions, strict=True):
                mine = [value for value in found if value.startswith(b"%d-" % copier.number)]
                assert mine == [copier.value(at) for at in range(position)]
        latest = {record.key(): record.value() for record in self._read(LATEST_OF_EACH, 0)}
        assert latest == {
            b"%d" % copier.number: copier.value(position - 1)
            for copier, position in zip(self.copiers, positions, strict=True)
        }
        self._check_late_ends()
        assert not +self.anomalies, dict(self.anomalies)
        assert not self.readers.failures, self.readers.failures[:5]

    def _check_late_ends(self) -> None:
        """A late end does not count for the next transaction, unless another server took over and aborted that."""
        rows = [json.loads(line) for node in self.nodes for line in node.log.splitlines() if _ABORTED in line]
        aborted = Counter(row["transactional_id"] for row in rows)
        assert all(copier.repeated_late <= aborted[copier.name] for copier in self.copiers)

    def _committed(self, number: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.addresses, "group.id": GROUP})
        found: int = consumer.committed([TopicPartition(SOURCE, number)], PATIENCE_S)[0].offset
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
            message: Any = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is None:
                found.append(message)
            elif message.error().name() == "_PARTITION_EOF":
                consumer.close()
                return found


class CopyingBeside(Load):
    """Copiers beside the load."""

    def start_clients(self, pause_s: float) -> tuple[Sending, Sequence[Receiving]]:
        self.copying = Copying(self.brokers)
        return super().start_clients(pause_s)

    def goes_on(self) -> None:
        super().goes_on()
        self.copying.goes_on()

    def check(self, gaps_of: Gaps) -> None:
        self.copying.ends()
        super().check(gaps_of)

    def stop(self) -> None:
        self.copying.stop()
        super().stop()
