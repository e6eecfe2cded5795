"""Peers that speak to a broker below the level of a client library: requests by hand, raw bytes, and a bystander.

The bystander is a well-behaved client on a connection of its own. It produces and reads back the whole time, so
whatever a hostile peer does to the broker, a test can say that nobody else noticed.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType

from headrace.client.connection import BrokerConnection
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.records import Record, decode_batch, encode_batch
from headrace.wire.schema import Records
from tests.broker_process import BrokerProcess, wait_until

PRODUCE_BY_NAME, FETCH_BY_NAME = 12, 12
"""The newest versions that name topics; later ones have only their ids."""
NO_SESSION = -1


def connect(broker: BrokerProcess, timeout_s: float = 30.0) -> BrokerConnection:
    return BrokerConnection(broker.host, broker.port, timeout_s)


def raw(broker: BrokerProcess, timeout_s: float = 30.0) -> socket.socket:
    """A bare connection."""
    return socket.create_connection((broker.host, broker.port), timeout_s)


def metadata(connection: BrokerConnection, *topics: str) -> MetadataResponse:
    """Asks for topics by name, which also creates them where that is switched on."""
    request = MetadataRequest([MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=True)
    return connection.send_for(request, MetadataResponse, 12)


def create_topic(
    connection: BrokerConnection, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Makes a topic that auto-creation would make otherwise."""
    rows: list[CreatableTopicConfig] = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    request = CreateTopicsRequest([CreatableTopic(topic, partitions, 1, [], rows)], 5_000)
    (result,) = connection.send_for(request, CreateTopicsResponse, 7).topics
    assert result.error_code == 0, result.error_message


def batch_of(*values: bytes | None, timestamp: int = 1_700_000_000_000) -> bytes:
    """A batch of records without keys."""
    return encode_batch([Record(offset, timestamp, None, value) for offset, value in enumerate(values)])


def produce_request(topic: str, batches: Mapping[int, Records | None], acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index, records) for index, records in batches.items()]
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def produce(
    connection: BrokerConnection, topic: str, batches: Mapping[int, Records | None], version: int = PRODUCE_BY_NAME
) -> dict[int, PartitionProduceResponse]:
    """Produces a batch to each partition; the answers by partition."""
    answer = connection.send_for(produce_request(topic, batches), ProduceResponse, version)
    return {found.index: found for found in answer.responses[0].partition_responses}


class IdempotentProducer:
    """Batches of one producer id, sequence numbers by hand."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        self.connection, self.topic = connection, topic
        answer = connection.send_for(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def batch(self, sequence: int, count: int = 1) -> bytes:
        records = [Record(i, 1_700_000_000_000, None, b"%d" % (sequence + i)) for i in range(count)]
        return encode_batch(records, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence)

    def send(self, sequence: int, count: int = 1) -> tuple[int, int]:
        """Error code and base offset."""
        answer = produce(self.connection, self.topic, {0: self.batch(sequence, count)})[0]
        return answer.error_code, answer.base_offset


def fetch_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    """A fetch without a session."""
    wanted = [
        FetchPartition(index, fetch_offset=at, partition_max_bytes=partition_max_bytes) for index, at in offsets.items()
    ]
    return FetchRequest(
        topics=[FetchTopic(topic=topic, partitions=wanted)],
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=NO_SESSION,
    )


def fetch(
    connection: BrokerConnection, topic: str, offsets: Mapping[int, int], **limits: int
) -> dict[int, PartitionData]:
    """Fetches from each partition; the answers by partition."""
    answer = connection.send_for(fetch_request(topic, offsets, **limits), FetchResponse, FETCH_BY_NAME)
    assert answer.error_code == 0
    return {found.partition_index: found for topic_ in answer.responses for found in topic_.partitions}


def values_of(data: PartitionData) -> list[bytes | None]:
    """The values in fetched batches."""
    return [record.value for record in records_of(data)]


def records_of(data: PartitionData) -> list[Record]:
    """The records in fetched batches."""
    return [record for batch in batches_of(data) for record in decode_batch(batch)]


def batches_of(data: PartitionData) -> Iterator[memoryview]:
    """The fetched batches, those of the broker itself too (markers, and what carries readers over a gap)."""
    view = memoryview(_joined(data))
    while view:
        size = struct.unpack_from(">i", view, 8)[0] + 12
        yield view[:size]
        view = view[size:]


def size_of(data: PartitionData) -> int:
    """Bytes of the fetched batches."""
    return len(_joined(data))


def _joined(data: PartitionData) -> bytes:
    assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
    return bytes(data.records or b"")


def is_closed_by_peer(line: socket.socket) -> bool:
    """Reads to the end; whether the broker closed the connection without sending anything."""
    with contextlib.suppress(ConnectionResetError):
        return line.recv(1) == b""
    return True


@contextlib.contextmanager
def memory_grows_less_than(broker: BrokerProcess, bound_bytes: int) -> Iterator[None]:
    """The broker's resident memory before and after, compared once it is quiet again."""
    before = broker.rss_bytes()
    yield
    wait_until(
        lambda: broker.rss_bytes() - before < bound_bytes,
        f"memory grew from {before >> 20} to {broker.rss_bytes() >> 20} MiB, more than {bound_bytes >> 20}",
        timeout_s=10,
    )


class Bystander:
    """A good client that goes on and on; leaving the `with` block says whether anything disturbed it."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.rounds = 0
        self._broker = broker
        self._topic = topic
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bystander")

    def __enter__(self) -> Bystander:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.goes_on()
        finally:
            self._stop.set()
            self._thread.join()

    def goes_on(self) -> None:
        """Returns once a round that began after this call is complete."""
        seen = self.rounds
        wait_until(
            lambda: self.rounds >= seen + 2 or self._failure is not None, "a good client was held up", timeout_s=10
        )
        if self._failure is not None:
            raise AssertionError("a good client was disturbed") from self._failure

    def _run(self) -> None:
        try:
            with connect(self._broker, timeout_s=10) as connection:
                metadata(connection, self._topic)
                while not self._stop.is_set():
                    value = b"round %d" % self.rounds
                    base = produce(connection, self._topic, {0: batch_of(value)})[0].base_offset
                    assert values_of(fetch(connection, self._topic, {0: base})[0]) == [value]
                    self.rounds += 1
                    time.sleep(0.001)
        except BaseException as error:
            self._failure = error
