"""Compacted topics of format `stream`, as Kafka clients and Redis code see them."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess, wait_until
from tests.clients.adapters import CLIENTS
from tests.clients.client import EARLIEST, Sent
from tests.clients.mixed_records import FIRST_TIMESTAMP
from tests.clients.test_round_trip import read_all
from tests.clients.test_streams import key_of
from tests.conftest import StartBroker
from tests.stores import redis_beside

COMPACTED = {"headrace.format": "stream", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
CONFLUENT = CLIENTS[0]


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that compacts often."""
    return start_broker(retention_check_interval_ms=50, compaction_check_interval_ms=50)


def updates(keys: int, rounds: int) -> list[Sent]:
    numbers = range(keys * rounds)
    return [Sent(0, b"k%d" % (n % keys), b"v%d" % n, (), FIRST_TIMESTAMP) for n in numbers]


def wait_for_entries(database: Any, topic: str, number: int) -> None:
    wait_until(lambda: database.xlen(key_of(topic)) == number, f"there are not {number} entries")


def test_the_last_value_of_each_key_stays_and_old_positions_can_be_read_on(broker: BrokerProcess, topic: str) -> None:
    CONFLUENT.create_topic(broker.address, topic, 1, COMPACTED)
    offsets = CONFLUENT.produce(broker.address, topic, updates(20, 100), {})
    with redis_beside(broker) as database:
        database.xgroup_create(key_of(topic), "app", "0")
        database.xadd(key_of(topic), {"key": "k3", "value": "by hand"})
        wait_for_entries(database, topic, 20)
        expected = {b"k%d" % n: b"v%d" % (1980 + n) for n in range(20)} | {b"k3": b"by hand"}
        for position in (EARLIEST, offsets[0], offsets[777], offsets[1979]):
            received = read_all(CONFLUENT, broker.address, topic, {0: position}, 20)
            assert {record.key: record.value for record in received} == expected
        kept = {record.offset for record in received}
        assert kept - set(offsets) == {max(kept)}
        assert len(kept & set(offsets[1980:])) == 19
        [[_, rows]] = database.xreadgroup("app", "c", {key_of(topic): ">"}, count=100)
        assert {fields[b"key"]: fields[b"value"] for _, fields in rows} == expected


def test_deleted_keys_vanish(broker: BrokerProcess, topic: str) -> None:
    CONFLUENT.create_topic(broker.address, topic, 1, COMPACTED | {"delete.retention.ms": "0"})
    gone = [Sent(0, b"k1", None, (), FIRST_TIMESTAMP)]
    CONFLUENT.produce(broker.address, topic, [*updates(3, 5), *gone, *updates(1, 1)], {})
    with redis_beside(broker) as database:
        wait_for_entries(database, topic, 2)
    received = read_all(CONFLUENT, broker.address, topic, {0: EARLIEST}, 2)
    assert [record.key for record in received] == [b"k2", b"k0"]


def test_a_record_without_a_key_is_refused(broker: BrokerProcess, topic: str) -> None:
    CONFLUENT.create_topic(broker.address, topic, 1, COMPACTED)
    errors: list[int] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error.code() if error else 0))
    producer.flush(20)
    assert errors == [confluent_kafka.KafkaError.INVALID_RECORD]


def test_a_compacted_topic_with_delete_loses_what_is_too_old(broker: BrokerProcess, topic: str) -> None:
    both = COMPACTED | {"cleanup.policy": "compact,delete", "retention.ms": "60000"}
    CONFLUENT.create_topic(broker.address, topic, 1, both)
    with redis_beside(broker) as database:
        database.xadd(key_of(topic), {"key": "old", "value": "v"}, id="1000-0")
        CONFLUENT.produce(broker.address, topic, updates(3, 5), {})
        wait_for_entries(database, topic, 3)
    received = read_all(CONFLUENT, broker.address, topic, {0: EARLIEST}, 3)
    assert [record.value for record in received] == [b"v12", b"v13", b"v14"]
