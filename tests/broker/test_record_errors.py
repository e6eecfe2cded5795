"""Produce names the records that a batch is refused for (KIP-467), in Kafka's words."""

from __future__ import annotations

import re
import time

import confluent_kafka
import pytest

from headrace.broker.produce.record_checks import RECORD_ERRORS_MOST
from headrace.wire.compression import Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, encode_batch
from tests.broker.administrator import Administrator, new_topic
from tests.broker.peers import produce
from tests.broker_process import BrokerProcess

COMPACTED = [
    pytest.param({"cleanup.policy": "compact"}, id="log"),
    pytest.param({"cleanup.policy": "compact", "compression.type": "zstd"}, id="recompressed"),
    pytest.param({"cleanup.policy": "compact", "headrace.format": "stream"}, id="stream"),
]
NOW = 1_700_000_000_000
BAD = (1, 3)
HOUR_MS = 3_600_000


@pytest.mark.parametrize("configs", COMPACTED)
def test_the_records_without_a_key_are_named(administrator: Administrator, topic: str, configs: dict[str, str]) -> None:
    administrator.create(new_topic(topic, configs=configs))
    records = [Record(n, NOW, None if n in BAD else b"k", b"v") for n in range(5)]
    answer = produce(administrator.connection, topic, {0: encode_batch(records, compression="gzip")})[0]
    why = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (ErrorCode.INVALID_RECORD, -1, 0)
    assert [(e.batch_index, e.batch_index_error_message) for e in answer.record_errors] == [(1, why), (3, why)]
    assert answer.error_message == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three"
        f" errors at most: [RecordError(batchIndex=1, message='{why}'), RecordError(batchIndex=3, message='{why}')]"
    )


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_records_with_a_time_out_of_bounds_are_named(
    administrator: Administrator, topic: str, compression: Compression
) -> None:
    administrator.create(new_topic(topic))
    ahead = time.time_ns() // 1_000_000 + 2 * HOUR_MS
    records = [Record(n, ahead if n in BAD else NOW, b"k", b"v") for n in range(5)]
    answer = produce(administrator.connection, topic, {0: encode_batch(records, compression=compression)})[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    assert [error.batch_index for error in answer.record_errors] == list(BAD)
    why = rf"Timestamp {ahead} of message with offset 1 is out of range. The timestamp should be within \[-?\d+, \d+\]"
    assert re.fullmatch(why, answer.record_errors[0].batch_index_error_message or "")


def test_a_version_without_room_for_them_has_the_error_alone(administrator: Administrator, topic: str) -> None:
    administrator.create(new_topic(topic, configs={"cleanup.policy": "compact"}))
    answer = produce(administrator.connection, topic, {0: encode_batch([Record(0, NOW, None, b"v")])}, version=7)[0]
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_RECORD, [])


def test_an_answer_names_a_bounded_number_of_records(administrator: Administrator, topic: str) -> None:
    administrator.create(new_topic(topic, partitions=3, configs={"cleanup.policy": "compact"}))
    batch = encode_batch([Record(n, NOW, None, b"") for n in range(8_000)], compression="zstd")
    answers = produce(administrator.connection, topic, dict.fromkeys(range(3), batch))
    assert [answers[n].error_code for n in range(3)] == [ErrorCode.INVALID_RECORD] * 3
    assert [len(answers[n].record_errors) for n in range(3)] == [8_000, RECORD_ERRORS_MOST - 8_000, 0]
    assert "8000 record errors in total" in (answers[2].error_message or "")


def test_librdkafka_tells_the_bad_records_from_those_beside_them(
    broker: BrokerProcess, administrator: Administrator, topic: str
) -> None:
    """Two bad ones: for a single one librdkafka reports the batch's error for all, whoever the broker is."""
    administrator.create(new_topic(topic, configs={"cleanup.policy": "compact"}))
    # So long that all are in one batch, however slow the machine is: flush does not wait for it.
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 60_000})
    codes: dict[bytes, int] = {}

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        codes[message.value() or b""] = error.code() if error else 0

    for n in range(5):
        producer.produce(topic, b"%d" % n, None if n in BAD else b"key", on_delivery=delivered)
    assert producer.flush(20) == 0
    different = confluent_kafka.KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {b"%d" % n: int(ErrorCode.INVALID_RECORD) if n in BAD else different for n in range(5)}
