"""What /metrics says of transactions, compaction and the archive is what they did."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker.test_metrics import value
from tests.broker_process import free_port, wait_until
from tests.conftest import StartBroker
from tests.tiered import BROKER, TieredTopic

DEFAULT = {"organisation": "default"}


def test_transactions_are_counted_by_outcome_and_the_open_one_ages(start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, metrics_interval_ms=200)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": "till"})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("sales", b"1")
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce("sales", b"open")
    producer.flush(30)
    wait_until(
        lambda: value(port, "headrace_transactions", **DEFAULT, state="Ongoing") == 1, "no transaction is seen as open"
    )
    assert (value(port, "headrace_transaction_oldest_seconds", **DEFAULT) or 0) > 0
    finished = {
        outcome: value(port, "headrace_transactions_finished_total", outcome=outcome) for outcome in ("commit", "abort")
    }
    assert finished == {"commit": 1, "abort": 1}


def test_lag_is_counted_beside_offsets_of_an_open_transaction(start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, metrics_interval_ms=200)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": "till"})
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": "readers"})
    producer.init_transactions(30)

    def send(offset: int) -> None:
        producer.begin_transaction()
        producer.produce("sales", b"1")
        producer.flush(30)
        place = confluent_kafka.TopicPartition("sales", 0, offset)
        producer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), 30)

    def lag() -> float | None:
        return value(port, "headrace_group_lag_records", **DEFAULT, topic="sales", group="readers")

    send(1)
    producer.commit_transaction(30)
    wait_until(lambda: lag() == 1, "the marker is not counted")
    send(2)
    wait_until(lambda: lag() == 2, "what is not committed is not counted")
    reader.close()


@pytest.mark.parametrize(
    ("kind", "removed"),
    [
        ("log", "headrace_compaction_removed_bytes_total"),
        ("stream", "headrace_compaction_removed_records_total"),
    ],
)
def test_compaction_is_counted(kind: str, removed: str, start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker(http_port=port, compaction_check_interval_ms=50, store_wait_ms=100, store_timeout_ms=400)
    configs = {"headrace.format": kind, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("accounts", 1, config=configs)])["accounts"].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for number in range(3):  # the last entry of a log stays
        for _ in range(100):
            producer.produce("accounts", f"balance {number}".encode(), b"key")
        assert producer.flush(30) == 0
    where = {**DEFAULT, "topic": "accounts"}
    wait_until(lambda: (value(port, removed, **where) or 0) > 0, "compaction removed nothing")
    assert (value(port, "headrace_compactions_total", **where) or 0) >= 1
    assert value(port, "headrace_compaction_waiting", **where) == 0


def test_the_archive_has_a_position_and_a_lag(start_broker: StartBroker, tmp_path: Path) -> None:
    port, lake = free_port(), tmp_path / "lake"
    lake.mkdir()
    broker = start_broker(http_port=port, lake=lake, metrics_partitions=True, metrics_interval_ms=3000, **BROKER)
    topic = TieredTopic(broker, lake, "orders")
    topic.produce(100)
    topic.archive()
    topic.produce(30, first=100)
    where = {**DEFAULT, "topic": "orders"}
    wait_until(lambda: value(port, "headrace_archive_lag_records", **where) == 30, "lag is not as it should be")
    assert (value(port, "headrace_archive_lag_seconds", **where) or 0) > 0
    assert value(port, "headrace_partition_archive_end_offset", **where, partition="0") == 100


def test_losses_are_counted_from_0_on_so_that_the_first_one_is_an_increase(start_broker: StartBroker) -> None:
    port = free_port()
    start_broker(http_port=port)
    assert value(port, "headrace_store_events_total", event="gaps") == 0
    assert value(port, "headrace_store_events_total", event="margins") == 0
