"""What was produced comes back: byte for byte, in order, from wherever it is asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.client import EARLIEST, LATEST, Client, Received, Sent
from tests.clients.mixed_records import FIRST_TIMESTAMP, mixed_records
from tests.conftest import StartBroker

PARTITIONS = 3
RECORDS = {"confluent-kafka": 100_000, "kafka-python": 20_000, "aiokafka": 20_000}
"""Over all compressions together."""

FEW = [Sent(0, b"%d" % number, b"value %d" % number, (), FIRST_TIMESTAMP + number) for number in range(100)]


def by_partition(received: list[Received]) -> dict[int, list[Received]]:
    found: dict[int, list[Received]] = {}
    for record in received:
        found.setdefault(record.partition, []).append(record)
    return found


def as_sent(received: list[Received]) -> list[Sent]:
    return [Sent(r.partition, r.key, r.value, r.headers, r.timestamp) for r in received]


def read_all(client: Client, address: str, topic: str, start: Mapping[int, int | str], count: int) -> list[Received]:
    with client.consumer(address, {}) as consumer:
        consumer.assign(topic, start)
        return consumer.read(count)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_mixed_records_come_back_byte_for_byte_in_order(
    broker: BrokerProcess, client: Client, topic: str, compression: str
) -> None:
    if compression not in client.compressions:
        pytest.skip(f"{client} has no {compression} here")
    client.create_topic(broker.address, topic, PARTITIONS, {})
    count = RECORDS[client.name] // len(client.compressions)
    sent = mixed_records(client, count, PARTITIONS, seed=len(compression))
    offsets = client.produce(broker.address, topic, sent, {"compression.type": compression})
    assert offsets == [number // PARTITIONS for number in range(count)]
    received = by_partition(read_all(client, broker.address, topic, dict.fromkeys(range(PARTITIONS), EARLIEST), count))
    for partition in range(PARTITIONS):
        expected = sent[partition::PARTITIONS]
        assert [record.offset for record in received[partition]] == list(range(len(expected)))
        assert as_sent(received[partition]) == expected


def test_records_are_read_from_an_offset_and_after_a_seek(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.produce(broker.address, topic, FEW, {})
    with client.consumer(broker.address, {}) as consumer:
        for start in (37, 99, 0, 50):
            consumer.assign(topic, {0: start})
            assert as_sent(consumer.read(100 - start)) == FEW[start:]


def test_offsets_are_found_by_time(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 2, {})
    client.produce(
        broker.address, topic, [r._replace(timestamp=FIRST_TIMESTAMP + 10 * i) for i, r in enumerate(FEW)], {}
    )
    with client.consumer(broker.address, {}) as consumer:
        for after_ms, offset in ((-5_000, 0), (0, 0), (1, 1), (500, 50), (985, 99), (990, 99), (991, None)):
            at = FIRST_TIMESTAMP + after_ms
            assert consumer.offsets_at(topic, {0: at, 1: at}) == {0: offset, 1: None}


def test_start_and_end_of_a_partition_are_known(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 2, {})
    client.produce(broker.address, topic, FEW, {})
    with client.consumer(broker.address, {}) as consumer:
        assert consumer.partitions(topic) == {0, 1}
        assert consumer.bounds(topic, 0) == (0, 100)
        assert consumer.bounds(topic, 1) == (0, 0)


def test_a_reader_from_the_end_gets_only_what_comes_then(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.produce(broker.address, topic, FEW[:60], {})
    with client.consumer(broker.address, {}) as consumer:
        consumer.assign(topic, {0: LATEST})
        assert consumer.poll(1.0) == []
        client.produce(broker.address, topic, FEW[60:], {})
        assert as_sent(consumer.read(40)) == FEW[60:]


def test_a_waiting_reader_gets_a_record_long_before_its_wait_is_over(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    wait_s = 25
    name = "fetch.wait.max.ms" if client.name == "confluent-kafka" else "fetch.max.wait.ms"
    client.produce(broker.address, topic, FEW[:1], {})
    with client.consumer(broker.address, {name: wait_s * 1_000}) as consumer:
        consumer.assign(topic, {0: 0})
        assert len(consumer.read(1)) == 1
        assert consumer.poll(1.0) == []  # the next fetch is on its way, and waits
        client.produce(broker.address, topic, FEW[1:2], {})
        began = time.monotonic()
        assert as_sent(consumer.read(1, timeout_s=wait_s)) == FEW[1:2]
        assert time.monotonic() - began < wait_s / 2


def test_times_are_the_brokers_where_the_topic_says_so(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    client.produce(broker.address, topic, FEW, {})
    received = read_all(client, broker.address, topic, {0: EARLIEST}, 100)
    after = int(time.time() * 1000)
    assert [record.value for record in received] == [record.value for record in FEW]
    assert all(before <= record.timestamp <= after for record in received)
    with client.consumer(broker.address, {}) as consumer:
        assert consumer.offsets_at(topic, {0: before}) == {0: 0}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement_keeps_the_records(
    broker: BrokerProcess, client: Client, topic: str, acks: int
) -> None:
    settings: dict[str, object] = {"acks": acks}
    if client.name == "kafka-python":
        settings["enable.idempotence"] = False
    offsets = client.produce(broker.address, topic, FEW, settings)
    if acks:
        assert offsets == list(range(100))
    assert as_sent(read_all(client, broker.address, topic, {0: EARLIEST}, 100)) == FEW


def test_an_idempotent_producer_works(broker: BrokerProcess, client: Client, topic: str) -> None:
    assert client.produce(broker.address, topic, FEW, {"enable.idempotence": True}) == list(range(100))
    assert as_sent(read_all(client, broker.address, topic, {0: EARLIEST}, 100)) == FEW


def test_records_of_several_topics_do_not_mix(broker: BrokerProcess, client: Client, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        client.create_topic(broker.address, name, PARTITIONS, {})
    sent = mixed_records(client, 300, PARTITIONS, seed=5)
    for name in names:
        client.produce(broker.address, name, sent, {})
    with client.consumer(broker.address, {}) as consumer:
        for name in names:
            consumer.assign(name, dict.fromkeys(range(PARTITIONS), EARLIEST))
            received = by_partition(consumer.read(300))
            for partition in range(PARTITIONS):
                assert as_sent(received[partition]) == sent[partition::PARTITIONS]


def test_what_was_produced_is_there_after_a_restart(start_broker: StartBroker, client: Client, topic: str) -> None:
    broker = start_broker()
    client.produce(broker.address, topic, FEW, {})
    assert broker.stop() == 0
    broker.start()
    assert as_sent(read_all(client, broker.address, topic, {0: EARLIEST}, 100)) == FEW
    assert client.produce(broker.address, topic, FEW, {}) == list(range(100, 200))
