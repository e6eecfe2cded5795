"""The other opinion: batches that real clients write are read here, and batches written here are read by them.

kafka-python and aiokafka bring a builder and a reader of batches that need no broker. librdkafka brings neither,
but a mock cluster inside the client; its broker is asked for the raw bytes, and given ours, over a plain socket.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.wire.batch import check_produced, iter_headers
from headrace.wire.compression import CODECS, Compression
from headrace.wire.records import Record, decode_batch, encode_batch
from tests.wire.skimmed import newest

NOW = 1_700_000_000_000
MAX_BYTES = 16 << 20

RECORDS = [
    Record(0, NOW, b"key", b"value", []),
    Record(1, NOW + 1, None, b"no key", []),
    Record(2, NOW - 5, b"tombstone, and older", None, [("only", b"header")]),
    Record(3, NOW + 1000, b"", b"", [("empty", b""), ("null", None), ("naïve ☃", b"\x00\xff"), ("empty", b"again")]),
    Record(4, NOW + 90_000_000, b"k" * 200, bytes(range(256)) * 600, []),
    *(Record(i, NOW + i, b"%d" % (i % 7), b"the same text again and again %d" % i) for i in range(5, 200)),
]

BUILDERS = [
    pytest.param(kafka_python_records, codec, id=f"kafka-python {codec}")
    for codec in CODECS
    if codec != "snappy"  # it wants a snappy library of its own
] + [pytest.param(aiokafka_records, codec, id=f"aiokafka {codec}") for codec in CODECS]


@pytest.mark.parametrize(("client", "codec"), BUILDERS)
def test_what_a_python_client_builds_is_read_here(client: Any, codec: Compression) -> None:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS.index(codec),
        is_transactional=False,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        batch_size=MAX_BYTES,
    )
    for record in RECORDS:
        appended = builder.append(
            offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        assert appended is not None
    batch = bytes(builder.build())
    header = check_produced(batch, MAX_BYTES)
    assert (header.compression, header.count) == (codec, len(RECORDS))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert newest(batch) == header.max_timestamp == NOW + 90_000_000
    assert decode_batch(batch) == RECORDS


@pytest.mark.parametrize(("client", "codec"), BUILDERS)
def test_what_is_encoded_here_is_read_by_a_python_client(client: Any, codec: Compression) -> None:
    batch = client.DefaultRecordBatch(encode_batch(RECORDS, compression=codec))
    assert batch.validate_crc()
    read = [Record(record.offset, record.timestamp, record.key, record.value, list(record.headers)) for record in batch]
    assert read == RECORDS


@pytest.mark.parametrize("client", [kafka_python_records, aiokafka_records])
def test_header_fields_mean_the_same_to_a_python_client(client: Any) -> None:
    written = encode_batch(
        [Record(500 + record.offset, record.timestamp) for record in RECORDS],
        base_offset=500,
        timestamp_type="LogAppendTime",
        producer_id=1 << 40,
        producer_epoch=9,
        base_sequence=1234,
        leader_epoch=6,
    )
    batch = client.DefaultRecordBatch(written)
    assert (batch.base_offset, batch.next_offset) == (500, 500 + len(RECORDS))
    assert (batch.timestamp_type, batch.max_timestamp) == (1, NOW + 90_000_000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1 << 40, 9, 1234)
    assert {record.timestamp for record in batch} == {NOW + 90_000_000}


class MockBroker:
    """librdkafka's mock cluster of one broker, spoken to with just enough of Kafka's protocol."""

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 3})
        broker = next(iter(self._owner.list_topics(timeout=10).brokers.values()))
        self.address = f"{broker.host}:{broker.port}"
        self._socket = socket.create_connection((broker.host, broker.port), timeout=10)

    def close(self) -> None:
        self._socket.close()

    def fetch(self, topic: str) -> bytes:
        """The records of partition 0, as they are stored."""
        body = struct.pack(">iiiibi", -1, 100, 1, MAX_BYTES, 0, 1) + _string(topic)
        body += struct.pack(">iiqi", 1, 0, 0, MAX_BYTES)
        answer = self._ask(1, 4, body)
        # Throttle time, one topic, its name, one partition; index, error, watermarks, aborted; then the records.
        pos = 4 + 4 + len(_string(topic)) + 4
        error, _, _, aborted = struct.unpack_from(">hqqi", answer, pos + 4)
        assert (error, max(aborted, 0)) == (0, 0)
        pos += 4 + 22
        (size,) = struct.unpack_from(">i", answer, pos)
        return answer[pos + 4 : pos + 4 + size]

    def produce(self, topic: str, batch: bytes) -> None:
        self._owner.list_topics(topic, timeout=10)  # creates it
        body = struct.pack(">hhii", -1, -1, 5000, 1) + _string(topic)
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        answer = self._ask(0, 7, body)
        (error,) = struct.unpack_from(">h", answer, 4 + len(_string(topic)) + 4 + 4)
        assert error == 0

    def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhi", api_key, version, 1) + _string("test") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)[4:]

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            assert chunk, "the mock broker closed the connection"
            received += chunk
        return bytes(received)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.fixture(scope="module")
def mock_broker() -> Iterator[MockBroker]:
    broker = MockBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_produces_is_read_here(mock_broker: MockBroker, codec: Compression) -> None:
    topic = f"from-librdkafka-{codec}"
    producer = Producer(
        {
            "bootstrap.servers": mock_broker.address,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 200,
        }
    )
    for record in RECORDS:
        producer.produce(
            topic, record.value, record.key, partition=0, timestamp=record.timestamp, headers=[*record.headers]
        )
    assert producer.flush(20) == 0

    stored = mock_broker.fetch(topic)
    read: list[Record] = []
    for pos, header in iter_headers(stored):
        batch = stored[pos : pos + header.length]
        assert header.producer_id >= 0
        assert newest(batch) == header.max_timestamp
        read += decode_batch(batch)
    assert codec in {header.compression for _, header in iter_headers(stored)}
    assert read == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_encoded_here_is_consumed_by_librdkafka(mock_broker: MockBroker, codec: Compression) -> None:
    topic = f"to-librdkafka-{codec}"
    mock_broker.produce(topic, encode_batch(RECORDS, compression=codec))
    consumer = Consumer(
        {"bootstrap.servers": mock_broker.address, "group.id": "readers", "check.crcs": True, "log_level": 3}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Any] = []
        while len(messages) < len(RECORDS):
            received = consumer.consume(len(RECORDS), timeout=10)
            assert received, f"{len(messages)} of {len(RECORDS)} records arrived"
            assert [message.error() for message in received if message.error()] == []
            messages += received
    finally:
        consumer.close()
    read = [Record(m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers() or []) for m in messages]
    assert read == RECORDS
