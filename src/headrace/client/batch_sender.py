"""Sends whole record batches to one topic, as an idempotent producer that can continue another process's sequences.

A batch is sent until it is acknowledged; sent twice, it is stored once. If it continues a dead producer (whose id and
last sequence are in the log, in the headers of its batches), batches that one still had in flight either arrive before
our first batch, which is then refused, or are refused themselves: never are both stored. Separate from producer.py,
which collects single records, because here nobody looks into a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import RetriableError
from headrace.client.producer import ALL, SEQUENCES, introduce, produce_request
from headrace.wire.batch import read_header, stamp_producer
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.produce import ProduceResponse
from headrace.wire.topic_partition import TopicPartition

REQUEST_BYTES = 8 * 1024 * 1024
"""Maximum size of the batches in one request; brokers accept 100 MiB by default."""


class ProducerState(msgspec.Struct, frozen=True):
    """A producer's position in one partition."""

    producer_id: int
    epoch: int
    next_sequence: int


class BatchSender:
    """The producer. `continued`: where another process left off, by partition."""

    def __init__(self, cluster: Cluster, topic: str, continued: Mapping[int, ProducerState] | None = None) -> None:
        self.cluster, self.topic = cluster, topic
        self._states = dict(continued or {})

    def send(self, batches: Mapping[int, bytearray]) -> dict[int, int]:
        """Sends one batch to each of these partitions; returns their base offsets once they are stored."""
        stamped = {(self.topic, partition): self._stamp(partition, batch) for partition, batch in batches.items()}
        offsets: dict[int, int] = {}
        for request in _requests(stamped):
            self.cluster.retrying(partial(self._deliver, request, offsets))
        return offsets

    def _stamp(self, partition: int, batch: bytearray) -> bytearray:
        state = self._states.get(partition)
        if state is None:
            state = self._begin()
        if state.producer_id < 0:
            return batch
        stamp_producer(batch, state.producer_id, state.epoch, state.next_sequence)
        after = (state.next_sequence + read_header(batch).count) % SEQUENCES
        self._states[partition] = msgspec.structs.replace(state, next_sequence=after)
        return batch

    def _begin(self) -> ProducerState:
        """The position in a partition that has no batch of the producer yet."""
        for known in self._states.values():
            return msgspec.structs.replace(known, next_sequence=0)
        return ProducerState(*self.cluster.retrying(lambda: introduce(self.cluster)), 0)

    def _deliver(self, waiting: dict[TopicPartition, bytearray], offsets: dict[int, int]) -> None:
        """Sends each leader its batches; acknowledged ones are removed."""
        failures: list[KafkaError] = []
        for node_id, partitions in self.cluster.by_leader(waiting).items():
            connection = self.cluster.node(node_id)
            wanted = {partition: waiting[partition] for partition in partitions}
            request, version = produce_request(self.cluster, connection, wanted, ALL)
            answer = connection.send_for(request, ProduceResponse, version)
            for result in (result for topic in answer.responses for result in topic.partition_responses):
                if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    del waiting[self.topic, result.index]
                    offsets[result.index] = result.base_offset
                else:
                    failures.append(self.cluster.topic_error(self.topic, result.error_code, result.error_message))
        if failures:
            raise next((f for f in failures if not isinstance(f, RetriableError)), failures[0])


def _requests(batches: Mapping[TopicPartition, bytearray]) -> Iterator[dict[TopicPartition, bytearray]]:
    """The batches in portions that fit in a request."""
    portion: dict[TopicPartition, bytearray] = {}
    size_bytes = 0
    for partition, batch in batches.items():
        if portion and size_bytes + len(batch) > REQUEST_BYTES:
            yield portion
            portion, size_bytes = {}, 0
        portion[partition] = batch
        size_bytes += len(batch)
    if portion:
        yield portion
