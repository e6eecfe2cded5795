"""Records sent by our producer and read by our reader, with librdkafka on either other side."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from headrace.client import Admin, Cluster, Groups, Producer, Reader
from headrace.client.groups import CommittedOffset
from headrace.client.partitioner import partition_for_key
from headrace.client.producer import ALL, LEADER, NOBODY, Sent
from headrace.wire.batch import read_header
from headrace.wire.compression import CODECS, Compression
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, decode_batch
from headrace.wire.special_times import EARLIEST, LATEST


def consume(address: str, topic: str, count: int) -> list[Any]:
    """What librdkafka's consumer reads."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(4)])
        messages: list[Any] = []
        while len(messages) < count:
            found = consumer.consume(count - len(messages), 10)
            assert found, f"only {len(messages)} of {count} arrived"
            messages.extend(found)
        return messages
    finally:
        consumer.close()


def raw_batches(cluster: Cluster, topic: str, partition: int) -> list[memoryview]:
    """All batches of a partition."""
    batches: list[memoryview] = []
    offset = 0
    while found := Reader(cluster).fetch_raw(topic, partition, offset, max_wait_ms=0).batches:
        batches.extend(found)
        offset = read_header(found[-1]).next_offset
    return batches


@pytest.mark.parametrize("compression", CODECS)
def test_librdkafka_reads_what_the_producer_sent(
    librdkafka_cluster: str, cluster: Cluster, topic: str, compression: Compression
) -> None:
    with Producer(cluster, compression=compression) as producer:
        sent = [
            producer.send(
                topic, b"value %d" % i, b"key %d" % i, [("n", b"%d" % i), ("none", None)], timestamp_ms=1000 + i
            )
            for i in range(50)
        ]
        tombstone = producer.send(topic, None, b"key 0")
    got = {(m.partition(), m.offset()): m for m in consume(librdkafka_cluster, topic, 51)}
    for i, at in enumerate(sent):
        message = got[at.partition, at.offset]
        assert (message.key(), message.value()) == (b"key %d" % i, b"value %d" % i)
        assert message.headers() == [("n", b"%d" % i), ("none", None)]
        assert message.timestamp()[1] == 1000 + i
        assert at.partition == partition_for_key(b"key %d" % i, 4)
    assert got[tombstone.partition, tombstone.offset].value() is None


def test_the_reader_gives_what_librdkafka_sent(librdkafka_cluster: str, cluster: Cluster, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": librdkafka_cluster, "compression.type": "zstd", "log_level": 0}
    )
    for i in range(40):
        producer.produce(topic, b"%d" % i, b"k", partition=i % 4, headers=[("h", b"x")], timestamp=5000 + i)
    producer.flush(10)
    read = list(Reader(cluster).read({(topic, p): EARLIEST for p in range(4)}))
    assert len(read) == 40
    for p in range(4):
        expected = [Record(n, 5000 + i, b"k", b"%d" % i, [("h", b"x")]) for n, i in enumerate(range(p, 40, 4))]
        assert [record for name, partition, record in read if (name, partition) == (topic, p)] == expected


def test_reading_starts_at_the_offset_asked_for_within_a_batch(cluster: Cluster, topic: str) -> None:
    with Producer(cluster) as producer:
        for i in range(10):
            producer.send(topic, b"%d" % i, partition=0)
    assert [r.offset for _, _, r in Reader(cluster).read({(topic, 0): 7})] == [7, 8, 9]
    assert list(Reader(cluster).read({(topic, 0): LATEST})) == []


def test_following_goes_on_with_what_is_sent_later(cluster: Cluster, topic: str, librdkafka_cluster: str) -> None:
    with Producer(cluster) as producer, Cluster(librdkafka_cluster) as other:
        producer.send(topic, b"first", partition=0)
        producer.flush()
        records = Reader(other, max_wait_ms=100).read({(topic, 0): EARLIEST}, follow=True)
        assert next(records)[2].value == b"first"
        producer.send(topic, b"second", partition=0)
        producer.flush()
        assert next(records)[2].value == b"second"


def test_raw_batches_are_the_producers_bytes(cluster: Cluster, topic: str) -> None:
    with Producer(cluster, compression="gzip") as producer:
        producer.send(topic, b"a" * 500, partition=2, timestamp_ms=1)
        producer.flush()
        producer.send(topic, b"b", partition=2, timestamp_ms=2)
    batches = raw_batches(cluster, topic, 2)
    assert [read_header(batch).compression for batch in batches] == ["gzip", "gzip"]
    assert [r.value for batch in batches for r in decode_batch(batch)] == [b"a" * 500, b"b"]
    fetched = Reader(cluster).fetch_raw(topic, 2, 0)
    assert (fetched.high_watermark, fetched.log_start_offset) == (2, 0)
    assert Reader(cluster).fetch_raw(topic, 2, 2, max_wait_ms=0).batches == []


def test_an_idempotent_producer_numbers_its_batches(cluster: Cluster, topic: str) -> None:
    with Producer(cluster) as producer:
        for count in (3, 1):
            for _ in range(count):
                producer.send(topic, b"x", partition=1)
            producer.flush()
    headers = [read_header(batch) for batch in raw_batches(cluster, topic, 1)]
    assert [header.base_sequence for header in headers] == [0, 3]
    assert headers[0].producer_id == headers[1].producer_id >= 0


@pytest.mark.parametrize("acks", [ALL, LEADER, NOBODY])
def test_offsets_are_known_unless_nobody_acknowledges(cluster: Cluster, topic: str, acks: int) -> None:
    with Producer(cluster, acks=acks) as producer:
        sent = [producer.send(topic, b"x", partition=0) for _ in range(3)]
    known = [-1, -1, -1] if acks == NOBODY else [0, 1, 2]
    assert sent == [Sent(topic, 0, offset) for offset in known]


def test_records_without_a_key_stay_together_until_they_are_flushed(cluster: Cluster, topic: str) -> None:
    with Producer(cluster) as producer:
        sent = [producer.send(topic, b"x") for _ in range(20)]
    assert len({s.partition for s in sent}) == 1


def test_a_full_batch_is_sent_without_being_asked(cluster: Cluster, topic: str) -> None:
    with Producer(cluster, batch_bytes=2_000) as producer:
        sent = [producer.send(topic, bytes(900), partition=0) for _ in range(4)]
        assert [s.offset for s in sent] == [0, 1, -1, -1]
    assert [s.offset for s in sent] == [0, 1, 2, 3]


def test_an_offset_that_is_not_there_is_an_error(cluster: Cluster, topic: str) -> None:
    cluster.topic(topic, create=True)
    with pytest.raises(KafkaError) as raised:
        Reader(cluster).fetch_raw(topic, 0, 1000)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_for_partitions_of_several_leaders(cluster: Cluster, topic: str) -> None:
    with Producer(cluster) as producer:
        for p in range(4):
            for _ in range(p):
                producer.send(topic, b"x", partition=p)
    admin = Admin(cluster)
    latest = admin.list_offsets({(topic, p): LATEST for p in range(4)})
    assert {p: found.offset for (_, p), found in latest.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert admin.list_offsets({(topic, 3): EARLIEST})[topic, 3].offset == 0


def test_offsets_of_a_group_are_set_and_read(cluster: Cluster, topic: str) -> None:
    cluster.topic(topic, create=True)
    groups = Groups(cluster)
    assert groups.offsets(topic, [(topic, 0), (topic, 1)]) == {}
    groups.set_offsets(topic, {(topic, 0): 7, (topic, 1): CommittedOffset(8, metadata="note")})
    found = groups.offsets(topic, [(topic, 0), (topic, 1), (topic, 2)])
    assert {p: (o.offset, o.metadata) for (_, p), o in found.items()} == {0: (7, ""), 1: (8, "note")}
