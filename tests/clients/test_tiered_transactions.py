"""Transactions in a tiered topic: before the records in Redis lies a marker, for which the lake has no record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.broker_process import BrokerProcess, wait_until
from tests.stores import broker_settings
from tests.tiered import BROKER, TieredTopic

COMMITTED = 20
WAIT_S = 20.0


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[TieredTopic]:
    """A topic whose first transaction, with its marker, is in the lake alone; a second one is open in Redis."""
    lake = tmp_path / "lake"
    lake.mkdir()
    process = BrokerProcess(tmp_path / "broker", lake=lake, **BROKER, **broker_settings())
    try:
        yield TieredTopic(process.start(), lake, "ledger")
    finally:
        process.end()


@pytest.fixture
def producer(tiered: TieredTopic) -> Producer:
    made = Producer({"bootstrap.servers": tiered.broker.address, "transactional.id": "mover"})
    made.init_transactions(WAIT_S)
    made.begin_transaction()
    _send(made, tiered, *(b"%d" % number for number in range(COMMITTED)))
    made.commit_transaction(WAIT_S)
    tiered.archive()
    made.begin_transaction()
    for _ in range(4):  # entries of the index: what lies before one of them leaves Redis
        _send(made, tiered, b"open" * 500)
    tiered.wait_until_local_from(COMMITTED + 1)
    return made


def _send(producer: Producer, tiered: TieredTopic, *values: bytes) -> None:
    for value in values:
        producer.produce(tiered.name, value, partition=0)
    producer.flush(WAIT_S)


def _read(tiered: TieredTopic) -> list[bytes]:
    """What a consumer with read_committed reads up to the end that it is told of."""
    consumer = Consumer(
        {
            "bootstrap.servers": tiered.broker.address,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(tiered.name, 0, 0)])
    found: list[bytes] = []

    def is_read() -> bool:
        for message in consumer.consume(100, 0.1):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return True
            found.append(message.value() or b"")
        return False

    try:
        wait_until(is_read, f"the end is not reached behind {len(found)} records")
        return found
    finally:
        consumer.close()


def test_what_was_aborted_behind_cold_records_is_not_read(tiered: TieredTopic, producer: Producer) -> None:
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    _send(producer, tiered, b"last")
    producer.commit_transaction(WAIT_S)
    assert _read(tiered) == [*(b"%d" % number for number in range(COMMITTED)), b"last"]


def test_the_end_is_reached_where_a_transaction_is_open_behind_cold_records(
    tiered: TieredTopic, producer: Producer
) -> None:
    assert _read(tiered) == [b"%d" % number for number in range(COMMITTED)]
    producer.abort_transaction(WAIT_S)
