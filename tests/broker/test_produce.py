"""Produce over the raw protocol: a bad batch gets its own error, and the partition beside it is none the wiser."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from headrace.client.connection import BrokerConnection
from headrace.client.errors import BrokerUnreachable
from headrace.wire.batch import crc_of
from headrace.wire.compression import Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.records import Record, encode_batch
from tests.broker.peers import (
    IdempotentProducer,
    batch_of,
    connect,
    create_topic,
    fetch,
    metadata,
    produce,
    produce_request,
    records_of,
    values_of,
)
from tests.broker_process import BrokerProcess

GOOD = batch_of(b"good")
CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, PRODUCER_AT, COUNT_AT = 17, 21, 23, 43, 57
COMPRESSIONS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(broker) as found:
        yield found


def changed(at: int, layout: str, *values: int, crc: bool = True) -> bytes:
    """A good batch with a field changed, its CRC made right again unless told not to."""
    batch = bytearray(GOOD)
    struct.pack_into(layout, batch, at, *values)
    if crc:
        struct.pack_into(">I", batch, CRC_AT, crc_of(batch))
    return bytes(batch)


BAD_BATCHES: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "a wrong CRC": (changed(CRC_AT, ">I", 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a damaged record": (GOOD[:-1] + b"\x7f", ErrorCode.CORRUPT_MESSAGE),
    "cut off in the header": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "cut off in a record": (GOOD[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "bytes behind it": (GOOD + b"\0", ErrorCode.INVALID_RECORD),
    "magic 0": (changed(16, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (changed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "a huge length": (changed(8, ">i", (1 << 31) - 1), ErrorCode.INVALID_RECORD),
    "a base offset": (changed(0, ">q", 7), ErrorCode.INVALID_RECORD),
    "the control bit": (changed(ATTRIBUTES_AT, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "the transactional bit": (changed(ATTRIBUTES_AT, ">h", 0x10), ErrorCode.INVALID_RECORD),
    "the time of an append": (changed(ATTRIBUTES_AT, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
    "an unknown compression": (changed(ATTRIBUTES_AT, ">h", 0x07), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no records": (changed(COUNT_AT, ">i", 0), ErrorCode.INVALID_RECORD),
    "fewer records than none": (changed(COUNT_AT, ">i", -1), ErrorCode.INVALID_RECORD),
    "more records than fit": (changed(COUNT_AT, ">i", 1_000), ErrorCode.INVALID_RECORD),
    "a last delta that is not the count's": (changed(LAST_DELTA_AT, ">i", 5), ErrorCode.INVALID_RECORD),
    "half a producer": (changed(PRODUCER_AT, ">qhi", 5, -1, -1), ErrorCode.INVALID_RECORD),
    "a batch that is too large": (batch_of(bytes(1_048_589)), ErrorCode.MESSAGE_TOO_LARGE),
    "a time far in the future": (batch_of(b"x", timestamp=1 << 60), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_the_partition_beside_it_is_served(
    connection: BrokerConnection, topic: str, what: str
) -> None:
    bad, code = BAD_BATCHES[what]
    create_topic(connection, topic, partitions=2)
    answers = produce(connection, topic, {0: bad, 1: GOOD})
    assert answers[0].error_code == code
    assert answers[0].base_offset == -1
    assert answers[0].error_message
    assert (answers[1].error_code, answers[1].base_offset) == (0, 0)
    found = fetch(connection, topic, {0: 0, 1: 0})
    assert values_of(found[0]) == []
    assert values_of(found[1]) == [b"good"]


def test_partitions_and_topics_that_are_not_there_get_their_own_error(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    answers = produce(connection, topic, {0: GOOD, 1: GOOD, -1: GOOD})
    assert {index: answer.error_code for index, answer in answers.items()} == {0: 0, 1: 3, -1: 3}
    answers = produce(connection, topic + "-nowhere", {0: GOOD})
    assert answers[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_several_topics_in_one_request_by_name_and_by_id(connection: BrokerConnection, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    found = metadata(connection, *names)
    by_name = [produce_request(name, {0: batch_of(name.encode())}).topic_data[0] for name in names]
    by_id = [
        TopicProduceData(one.topic_id, "", two.partition_data) for one, two in zip(found.topics, by_name, strict=True)
    ]
    for offset, (data, version) in enumerate([(by_name, 12), (by_id, 13)]):
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data)
        answer = connection.send_for(request, ProduceResponse, version)
        assert [p.base_offset for t in answer.responses for p in t.partition_responses] == [offset] * 3
    for name in names:
        assert values_of(fetch(connection, name, {0: 0})[0]) == [name.encode()] * 2


def test_an_unknown_topic_id_is_refused(connection: BrokerConnection) -> None:
    unknown = produce_request("", {0: GOOD})
    unknown.topic_data[0].topic_id = bytes(range(16))
    answer = connection.send_for(unknown, ProduceResponse, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist_are_refused(connection: BrokerConnection, topic: str, acks: int) -> None:
    metadata(connection, topic)
    answer = connection.send_for(produce_request(topic, {0: GOOD}, acks), ProduceResponse, 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_without_acks_nothing_is_answered_and_an_error_closes_the_connection(
    connection: BrokerConnection, topic: str
) -> None:
    metadata(connection, topic)
    connection.tell(produce_request(topic, {0: GOOD}, acks=0), 12)
    assert fetch(connection, topic, {0: 1})[0].high_watermark == 1
    connection.tell(produce_request(topic + "-nowhere", {0: GOOD}, acks=0), 12)
    with pytest.raises(BrokerUnreachable):
        connection.read_frame()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_compression_comes_back_byte_for_byte(
    connection: BrokerConnection, topic: str, compression: Compression
) -> None:
    metadata(connection, topic)
    batch = encode_batch(
        [Record(i, 1_700_000_000_000, b"k%d" % i, bytes(100)) for i in range(100)], compression=compression
    )
    assert produce(connection, topic, {0: batch})[0].error_code == 0
    data = fetch(connection, topic, {0: 0})[0]
    assert isinstance(data.records, memoryview | bytes)
    # Base offset 0, and the leader epoch, which the broker sets, lies outside the CRC.
    assert bytes(data.records)[16:] == batch[16:]


def test_zstd_below_version_7_is_refused(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"value")], compression="zstd")
    assert produce(connection, topic, {0: batch}, version=6)[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(connection, topic, {0: batch}, version=7)[0].error_code == 0


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name_appends(connection: BrokerConnection, topic: str, version: int) -> None:
    metadata(connection, topic)
    answer = produce(connection, topic, {0: GOOD}, version)[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_log_append_time_is_the_brokers_and_the_same_for_all(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic, configs={"message.timestamp.type": "LogAppendTime"})
    answer = produce(connection, topic, {0: batch_of(b"a", b"b", timestamp=5)})[0]
    assert answer.log_append_time_ms > 1_700_000_000_000
    assert {r.timestamp for r in records_of(fetch(connection, topic, {0: 0})[0])} == {answer.log_append_time_ms}
    assert find_time(connection, topic, answer.log_append_time_ms) == (0, answer.log_append_time_ms)


def find_time(connection: BrokerConnection, topic: str, timestamp: int) -> tuple[int, int]:
    """ListOffsets: offset and timestamp."""
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    answer = connection.send_for(ListOffsetsRequest(topics=[asked]), ListOffsetsResponse, 7)
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset, found.timestamp


def test_a_batch_whose_records_are_nonsense_harms_its_own_readers_alone(
    connection: BrokerConnection, topic: str
) -> None:
    """Its CRC is right and its header plausible, so it gets in; looking up a time passes over it all the same."""
    metadata(connection, topic)
    nonsense = bytearray(batch_of(b"nonsense", timestamp=2_000))
    nonsense[61:] = b"\xff" * (len(nonsense) - 61)
    struct.pack_into(">I", nonsense, CRC_AT, crc_of(nonsense))
    produce(connection, topic, {0: batch_of(b"before", timestamp=1_000)})
    produce(connection, topic, {0: bytes(nonsense)})
    produce(connection, topic, {0: batch_of(b"after", timestamp=3_000)})
    assert find_time(connection, topic, 1_000) == (0, 1_000)
    assert find_time(connection, topic, 1_500)[0] in (1, 2)
    assert find_time(connection, topic, 3_000) == (2, 3_000)


# -- idempotent producers -----------------------------------------------------------------------------------------


@pytest.fixture
def producer(connection: BrokerConnection, topic: str) -> IdempotentProducer:
    metadata(connection, topic)
    return IdempotentProducer(connection, topic)


def test_a_repeated_batch_is_answered_with_its_first_offset_and_not_appended(producer: IdempotentProducer) -> None:
    assert [producer.send(0, 3), producer.send(3, 2), producer.send(5)] == [(0, 0), (0, 3), (0, 5)]
    assert [producer.send(0, 3), producer.send(3, 2), producer.send(5)] == [(0, 0), (0, 3), (0, 5)]
    assert fetch(producer.connection, producer.topic, {0: 0})[0].high_watermark == 6


def test_a_gap_in_the_sequence_is_refused(producer: IdempotentProducer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1) == (0, 1)


def test_a_batch_older_than_the_five_remembered_is_out_of_order(producer: IdempotentProducer) -> None:
    for sequence in range(8):
        assert producer.send(sequence) == (0, sequence)
    assert producer.send(3) == (0, 3)
    assert producer.send(2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced(producer: IdempotentProducer) -> None:
    producer.epoch = 1
    assert producer.send(0) == (0, 0)
    producer.epoch = 0
    assert producer.send(1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_pipelined_batches_of_one_connection_are_appended_in_their_order(producer: IdempotentProducer) -> None:
    """Also where a request first waits for a partition that nobody used before: the next must not overtake it."""
    fresh = [f"{producer.topic}-{number}" for number in range(10)]
    metadata(producer.connection, *fresh)
    requests = []
    for number, name in enumerate(fresh):
        slow = produce_request(name, {0: GOOD})
        slow.topic_data += produce_request(producer.topic, {0: producer.batch(2 * number)}).topic_data
        requests += [slow, produce_request(producer.topic, {0: producer.batch(2 * number + 1)})]
    offsets = []
    for answer in producer.connection.send_pipelined(requests, 12):
        assert isinstance(answer, ProduceResponse)
        offsets.append(answer.responses[-1].partition_responses[0].base_offset)
    assert offsets == list(range(20))


def test_producer_ids_are_never_given_twice(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    ids = [IdempotentProducer(connection, topic).id for _ in range(500)]
    assert len(set(ids)) == 500
    assert min(ids) >= 0
