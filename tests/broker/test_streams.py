"""Topics of format `stream` over the raw protocol: errors, times, bounds, sizes and configs."""

from __future__ import annotations

import struct

import pytest

from headrace.wire.batch import HEADER_BYTES, crc_of
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.administrator import Administrator, new_topic
from tests.broker.peers import IdempotentProducer, batch_of, fetch, produce, values_of
from tests.broker.test_administration_without_store import delete
from tests.broker.test_list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, ask
from tests.broker_process import BrokerProcess
from tests.redis_view import RedisView

FEW = (b"0", b"1", b"2")


@pytest.fixture
def stream(administrator: Administrator, topic: str) -> str:
    assert administrator.create(new_topic(topic, configs={"headrace.format": "stream"})).error_code == 0
    return topic


def test_the_answer_has_the_records_time_and_offset(administrator: Administrator, stream: str) -> None:
    answer = produce(administrator.connection, stream, {0: batch_of(*FEW)})[0]
    assert (answer.error_code, answer.base_offset >> 10) == (0, answer.log_append_time_ms)
    assert values_of(fetch(administrator.connection, stream, {0: answer.base_offset})[0]) == list(FEW)


def test_a_batch_whose_inside_is_bad_is_refused_and_stores_nothing(administrator: Administrator, stream: str) -> None:
    bad = bytearray(batch_of(*FEW))
    bad[HEADER_BYTES] ^= 0x7F  # the length of the first record
    struct.pack_into(">I", bad, 17, crc_of(bad))
    assert produce(administrator.connection, stream, {0: bytes(bad)})[0].error_code == ErrorCode.INVALID_RECORD
    assert ask(administrator.connection, stream, LATEST).offset == 0


def test_an_idempotent_producers_repeats_and_gaps(administrator: Administrator, stream: str) -> None:
    producer = IdempotentProducer(administrator.connection, stream)
    first = producer.send(0, 3)
    assert producer.send(0, 3) == first
    assert producer.send(3)[0] == 0
    assert producer.send(9)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_start_end_times_and_epochs(broker: BrokerProcess, administrator: Administrator, stream: str) -> None:
    connection = administrator.connection
    assert [ask(connection, stream, when).offset for when in (EARLIEST, LATEST, MAX_TIMESTAMP, 0)] == [0, 0, -1, -1]
    base = produce(connection, stream, {0: batch_of(*FEW)})[0].base_offset
    with RedisView.of(broker) as redis:
        identity = redis.call("XADD", f"headrace:default:{{{stream}:0}}:stream", "*", "value", "3").decode()
    ms, sequence = map(int, identity.split("-"))
    last = (ms << 10) + sequence
    assert ask(connection, stream, EARLIEST).offset == base
    assert ask(connection, stream, LATEST).offset == last + 1
    newest = ask(connection, stream, MAX_TIMESTAMP)
    assert (newest.offset, newest.timestamp) == (last, ms)
    assert ask(connection, stream, base >> 10).offset == base
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(stream, [wanted])])
    (found,) = connection.send_for(request, OffsetForLeaderEpochResponse, 4).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, last + 1)


def test_deleted_records_are_gone(administrator: Administrator, stream: str) -> None:
    connection = administrator.connection
    base = produce(connection, stream, {0: batch_of(*FEW)})[0].base_offset
    assert administrator.delete_records(stream, 0, base + 2) == (0, base + 2)
    assert fetch(connection, stream, {0: base})[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(fetch(connection, stream, {0: base + 2})[0])[-1] == b"2"
    assert administrator.delete_records(stream, 0, -1) == (0, base + 3)
    assert administrator.delete_records(stream, 0, base + 4)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_its_size_counts_what_redis_code_wrote(
    broker: BrokerProcess, administrator: Administrator, stream: str
) -> None:
    produce(administrator.connection, stream, {0: batch_of(b"x" * 1000)})
    with RedisView.of(broker) as redis:
        redis.call("XADD", f"headrace:default:{{{stream}:0}}:stream", "*", "value", "x" * 1000)
    request = DescribeLogDirsRequest([DescribableLogDirTopic(stream, [0])])
    (result,) = administrator.connection.send_for(request, DescribeLogDirsResponse, 4).results
    assert 2_000 <= result.topics[0].partitions[0].partition_size < 2_200


def test_its_configs_say_how_it_lies_and_stay(administrator: Administrator, stream: str) -> None:
    assert administrator.config(stream, "message.timestamp.type").value == "LogAppendTime"
    assert administrator.config(stream, "headrace.stream.sequence.bits").value == "10"
    code, words = administrator.alter(stream, [("headrace.stream.sequence.bits", 0, "11")])
    assert (code, "cannot be changed" in (words or "")) == (ErrorCode.INVALID_CONFIG, True)
    administrator.replace(stream, {"message.timestamp.type": "CreateTime"})
    assert administrator.own_configs(stream) == {"headrace.format": "stream", "message.timestamp.type": "CreateTime"}


def test_deleting_the_topic_deletes_the_stream(
    broker: BrokerProcess, administrator: Administrator, stream: str
) -> None:
    produce(administrator.connection, stream, {0: batch_of(*FEW)})
    with RedisView.of(broker) as redis:
        assert len(redis.keys(f"*{{{stream}:0}}*")) == 5
        delete(administrator, stream)
        assert redis.keys(f"*{{{stream}:0}}*") == []
