"""A simple producer: records are collected per partition and sent as one batch each, when there are enough or on
request.

With acks `all` it is idempotent if the broker supports that: a batch with a lost response is resent with the same
sequence, and the broker recognises it. Without, a broken connection may duplicate a batch, never lose one. After a
batch has failed for good the next one starts with a new producer id, so no sequence ever has two meanings.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

import msgspec

from headrace.client.cluster import Cluster, by_topic
from headrace.client.connection import BrokerConnection, check
from headrace.client.errors import AWAY, TEMPORARY, RetriableError
from headrace.client.partitioner import partition_for_key
from headrace.wire.compression import Compression
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.records import Header, Record, encode_batch
from headrace.wire.schema import ZERO_UUID, Buffer
from headrace.wire.topic_partition import TopicPartition

ALL, LEADER, NOBODY = -1, 1, 0
"""Values of acks: who must have a record before it is acknowledged."""

BATCH_BYTES = 512 * 1024
"""Well below Kafka's `max.message.bytes` of 1 MiB: the size of headers and lengths is only estimated."""

TOPICS_BY_NAME = 12
"""The newest version of Produce that names topics; later ones have only their ids."""

NO_PRODUCER = (-1, -1)
"""Id and epoch of a producer that is not idempotent."""

SEQUENCES = 1 << 31
"""Number of sequences: after the last comes 0."""

_RECORD_OVERHEAD_BYTES = 32


class Sent(msgspec.Struct):
    """Where a record was sent; its offset is -1 until it is acknowledged, and with acks=0."""

    topic: str
    partition: int
    offset: int = -1


class _Gathered(msgspec.Struct):
    """Records of one partition, waiting for the next flush."""

    records: list[Record] = []
    sent: list[Sent] = []
    size_bytes: int = 0


class _Identity(msgspec.Struct):
    """Producer id and epoch, and the next sequence of each partition."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = {}


_Batches = dict[TopicPartition, tuple[bytes, list[Sent]]]


class Producer:
    """Sends records to a cluster. Use it as a context manager, or call `flush`: unflushed records are not sent."""

    def __init__(
        self,
        cluster: Cluster,
        acks: int = ALL,
        compression: Compression = "none",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.cluster = cluster
        self.acks = acks
        self.compression = compression
        self.batch_bytes = batch_bytes
        self._gathered: dict[TopicPartition, _Gathered] = {}
        self._keyless: dict[str, int] = {}
        self._identity: _Identity | None = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Adds a record to the next batch; the batches are sent once one of them is full."""
        partition = self._choose(topic, key, partition)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") + 4 for name, content in headers)
        waiting = self._gathered.get((topic, partition))
        if waiting is not None and waiting.size_bytes + size > self.batch_bytes:
            self.flush()
        gathered = self._gathered.setdefault((topic, partition), _Gathered())
        gathered.records.append(Record(len(gathered.records), timestamp_ms, key, value, list(headers)))
        gathered.sent.append(sent := Sent(topic, partition))
        gathered.size_bytes += size
        return sent

    def flush(self) -> None:
        """Sends all pending records and waits for acknowledgements; raises the error of a record that fails."""
        gathered, self._gathered = self._gathered, {}
        self._keyless.clear()
        if not gathered:
            return
        try:
            batches = self.cluster.retrying(lambda: self._encode(gathered))
            self.cluster.retrying(lambda: self._deliver(batches), repeatable=True)
        except BaseException:
            self._identity = None
            raise

    def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        """The key's partition; records without a key share one partition until the next flush, then another."""
        # Requested even if the partition is given: the request makes a broker auto-create a missing topic.
        count = len(self.cluster.retrying(lambda: self.cluster.topic(topic, create=True)).partitions)
        if partition is not None:
            return partition
        if key is not None:
            return partition_for_key(key, count)
        if topic not in self._keyless:
            self._keyless[topic] = random.randrange(count)
        return self._keyless[topic]

    def _encode(self, gathered: dict[TopicPartition, _Gathered]) -> _Batches:
        if self._identity is None:
            producer_id, epoch = introduce(self.cluster) if self.acks == ALL else NO_PRODUCER
            self._identity = _Identity(producer_id, epoch)
        me = self._identity
        batches: _Batches = {}
        for partition, waiting in gathered.items():
            sequence = me.sequences.get(partition, 0) if me.producer_id >= 0 else -1
            data = encode_batch(
                waiting.records,
                compression=self.compression,
                producer_id=me.producer_id,
                producer_epoch=me.epoch,
                base_sequence=sequence,
            )
            me.sequences[partition] = (sequence + len(waiting.records)) % SEQUENCES
            batches[partition] = (data, waiting.sent)
        return batches

    def _deliver(self, batches: _Batches) -> None:
        """Sends the batches to their leaders; acknowledged ones are removed."""
        failures: list[KafkaError] = []
        for node_id, partitions in self.cluster.by_leader(batches).items():
            connection = self.cluster.node(node_id)
            wanted = {partition: batches[partition][0] for partition in partitions}
            request, version = produce_request(self.cluster, connection, wanted, self.acks)
            if self.acks == NOBODY:
                connection.tell(request, version)
                for partition in partitions:
                    del batches[partition]
                continue
            answer = connection.send_for(request, ProduceResponse, version)
            names = {topic.topic_id: topic.name for topic in request.topic_data}
            for topic in answer.responses:
                name = topic.name or names[topic.topic_id]
                settled = [self._settle(name, result, batches) for result in topic.partition_responses]
                failures.extend(failure for failure in settled if failure is not None)
        if failures:
            raise next((f for f in failures if not isinstance(f, RetriableError)), failures[0])

    def _settle(self, topic: str, result: PartitionProduceResponse, batches: _Batches) -> KafkaError | None:
        """Fills in the offsets of an acknowledged batch, or returns its error."""
        if result.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            words = result.error_message
            if result.error_code in AWAY:  # other partitions may have their records
                words = f"{topic}-{result.index}: {words or TEMPORARY[ErrorCode(result.error_code)]}"
            return self.cluster.topic_error(topic, result.error_code, words)
        _, sent = batches.pop((topic, result.index))
        if result.base_offset >= 0:
            for delta, record in enumerate(sent):
                record.offset = result.base_offset + delta
        return None


def introduce(cluster: Cluster) -> tuple[int, int]:
    """A producer id and its epoch, or NO_PRODUCER if the broker does not support idempotent producers."""
    connection = cluster.any_node()
    if InitProducerIdRequest.api.key not in connection.versions:
        return NO_PRODUCER
    answer = connection.send_for(InitProducerIdRequest(None, 60_000), InitProducerIdResponse)
    check(answer.error_code)
    return answer.producer_id, answer.producer_epoch


def produce_request(
    cluster: Cluster, connection: BrokerConnection, batches: Mapping[TopicPartition, Buffer], acks: int
) -> tuple[ProduceRequest, int]:
    """The request that sends one batch to each partition, and the version to send it in."""
    topics = [
        TopicProduceData(
            cluster.topic(name).topic_id,
            name,
            [PartitionProduceData(index, batches[name, index]) for index in indexes],
        )
        for name, indexes in by_topic(batches).items()
    ]
    have_ids = all(topic.topic_id != ZERO_UUID for topic in topics)
    newest = ProduceRequest.api.versions[1] if have_ids else TOPICS_BY_NAME
    version = connection.newest(ProduceRequest.api.key, newest)
    return ProduceRequest(None, acks, int(cluster.timeout_s * 1000), topics), version
