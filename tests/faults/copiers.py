"""Copiers: each moves records from one partition to several others, exactly once, in transactions of its own.

A copier reads how far it has come from its group's committed offset, appends the next records to every partition of the
output and the last of them to a compacted topic, and commits the new offset with them. Whatever goes wrong, it starts
anew as another producer would after a crash. So every partition of the output has to be the same list in the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from headrace.client import Admin, BrokerUnreachable, Cluster
from headrace.client.cluster import COORDINATOR_OF_TRANSACTIONS
from headrace.wire.errors import KafkaError
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.special_times import LATEST
from tests.broker.transactions.producing import batch

SOURCE, OUTPUT, LATEST_OF_EACH = "source", "output", "latest"
PARTITIONS = 3
GROUP = "copiers"
_TIMEOUT_S = 5.0


class Failed(Exception):
    """An error, or no answer: what became of it nobody knows."""


class Copier(threading.Thread):
    """One of them; it copies until it is told to stop."""

    def __init__(self, addresses: str, number: int, version: int, anomalies: Counter[str]) -> None:
        super().__init__(name=f"copier-{number}", daemon=True)
        self.number, self.version = number, version
        self.ended, self.commits = threading.Event(), 0
        self.trouble = ""
        """What it had to start anew for, the last time."""
        self.repeated_late = 0
        """How often the end of the transaction before was answered with success while the next one was open."""
        self._anomalies = anomalies
        self._addresses = addresses
        self._chance = random.Random(number)
        self._producer = (-1, -1)
        self._late: tuple[int, int] | None = None
        self._sequences: Counter[tuple[str, int]] = Counter()

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                with Cluster(self._addresses, timeout_s=_TIMEOUT_S) as cluster:
                    self._cluster = cluster
                    self._begin()
                    position = self._position()
                    while not self.ended.is_set():
                        position = self._copy(position)
            except (KafkaError, BrokerUnreachable, Failed, OSError, AssertionError) as error:
                self.trouble = repr(error)
                time.sleep(0.05)

    def value(self, position: int) -> bytes:
        return b"%d-%d" % (self.number, position)

    # -- steps --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        answer = self._ask_owner(InitProducerIdRequest(self.name, 10_000, -1, -1), 5)
        self._check(answer.error_code)
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences.clear()

    def _position(self) -> int:
        topics = [OffsetFetchRequestTopics(name=SOURCE, partition_indexes=[self.number])]
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
        answer: Any = self._cluster.coordinator(GROUP).send(OffsetFetchRequest(groups=groups, require_stable=True), 9)
        self._check(answer.groups[0].error_code)
        row = answer.groups[0].topics[0].partitions[0]
        self._check(row.error_code)
        position: int = row.committed_offset
        return max(0, position)

    def _copy(self, position: int) -> int:
        """One transaction; where the copier stands then."""
        after = position + self._chance.randrange(1, 6)
        values = [self.value(at) for at in range(position, after)]
        for partition in range(PARTITIONS):
            self._send(OUTPUT, partition, values)
            self._send_late_end()
        self._send(LATEST_OF_EACH, 0, values[-1:], key=b"%d" % self.number)
        self._commit_offset(after)
        fate = self._chance.random()
        if fate < 0.05:
            raise Failed  # it dies
        commit = fate < 0.8
        before = self._producer
        self._end(before, commit=commit)
        self.commits += commit
        if self.version == 2 and self._chance.random() < 0.2:
            self._late = before
            answer = self._ask_owner(EndTxnRequest(self.name, *before, commit), 5)
            if answer.error_code in (48, 90):
                self._anomalies["the same end is answered in another way"] += 1
        return after if commit else position

    def _send(self, topic: str, partition: int, values: list[bytes], key: bytes | None = None) -> None:
        if self.version == 1:
            self._add(AddPartitionsToTxnTopic(topic, [partition]))
        sequence = self._sequences[topic, partition]
        made = memoryview(bytearray(batch(values, self._producer, sequence, key=key)))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, made)])
        leader = self._cluster.node(self._cluster.leader(topic, partition))
        request = ProduceRequest(self.name, -1, 5_000, [data])
        answer: Any = leader.send(request, 12 if self.version == 2 else 11)
        self._check(answer.responses[0].partition_responses[0].error_code)
        self._sequences[topic, partition] += len(values)

    def _add(self, topic: AddPartitionsToTxnTopic) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )
        rows = self._ask_owner(request, 3).results_by_topic_v3_and_below
        self._check(rows[0].results_by_partition[0].partition_error_code)

    def _commit_offset(self, offset: int) -> None:
        if self.version == 1:
            self._check(self._ask_owner(AddOffsetsToTxnRequest(self.name, *self._producer, GROUP), 3).error_code)
        rows = [TxnOffsetCommitRequestPartition(self.number, offset)]
        request = TxnOffsetCommitRequest(self.name, GROUP, *self._producer, topics=[])
        request.topics = [TxnOffsetCommitRequestTopic(SOURCE, partitions=rows)]
        answer: Any = self._cluster.coordinator(GROUP).send(request, 5 if self.version == 2 else 3)
        self._check(answer.topics[0].partitions[0].error_code)

    def _end(self, producer: tuple[int, int], *, commit: bool) -> None:
        answer = self._ask_owner(EndTxnRequest(self.name, *producer, commit), 5 if self.version == 2 else 4)
        self._check(answer.error_code)
        if self.version == 2:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()

    def _send_late_end(self) -> None:
        """The end of the transaction before arrives while the next is open."""
        before, self._late = self._late, None
        if before is not None:
            answer = self._ask_owner(EndTxnRequest(self.name, *before, self._chance.random() < 0.5), 5)
            self.repeated_late += answer.error_code == 0

    def _ask_owner(self, request: Any, version: int) -> Any:
        return self._cluster.coordinator(self.name, COORDINATOR_OF_TRANSACTIONS).send(request, version)

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise Failed(code)


class Watcher(threading.Thread):
    """Looks at the last stable offsets all the time: they never go back."""

    def __init__(self, addresses: str, anomalies: Counter[str]) -> None:
        super().__init__(name="watcher", daemon=True)
        self.ended = threading.Event()
        self._addresses, self._anomalies = addresses, anomalies
        self._seen: Counter[tuple[str, int]] = Counter()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            try:
                with Cluster(self._addresses, timeout_s=_TIMEOUT_S) as cluster:
                    while not self.ended.wait(0.05):
                        for place, offset in stable_ends(cluster).items():
                            if offset < self._seen[place]:
                                self._anomalies[f"the last stable offset went back: {place}"] += 1
                            self._seen[place] = max(self._seen[place], offset)
            except (KafkaError, BrokerUnreachable, OSError, AssertionError):
                continue


def stable_ends(cluster: Cluster, *, committed: bool = True) -> dict[Any, int]:
    places = {(OUTPUT, number): LATEST for number in range(PARTITIONS)} | {(LATEST_OF_EACH, 0): LATEST}
    found = Admin(cluster).list_offsets(places, read_committed=committed)
    return {place: one.offset for place, one in found.items()}
