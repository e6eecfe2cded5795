"""Topics of format `stream`: the same records for Kafka clients and for Redis code, both ways, at the same time."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess, wait_until
from tests.clients.adapters import CLIENTS
from tests.clients.client import EARLIEST, LATEST, Client, Sent
from tests.clients.mixed_records import FIRST_TIMESTAMP, mixed_records
from tests.clients.test_round_trip import as_sent, by_partition, read_all
from tests.conftest import StartBroker
from tests.stores import key_at, redis_beside

STREAM = {"headrace.format": "stream"}
KEEPS_TIMES = STREAM | {"message.timestamp.type": "CreateTime"}
PARTITIONS = 2
RECORDS = {"confluent-kafka": 10_000, "kafka-python": 3_000, "aiokafka": 3_000}
FEW = [Sent(0, b"%d" % number, b"value %d" % number, (), FIRST_TIMESTAMP + number) for number in range(100)]
CONFLUENT = CLIENTS[0]


def key_of(topic: str, partition: int = 0) -> str:
    return key_at(f"default:{{{topic}:{partition}}}:stream")


@pytest.fixture
def database(broker: BrokerProcess) -> Iterator[Any]:
    with redis_beside(broker) as client:
        yield client


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_mixed_records_come_back_byte_for_byte_in_order(
    broker: BrokerProcess, client: Client, topic: str, compression: str
) -> None:
    if compression not in client.compressions:
        pytest.skip(f"{client} has no {compression} here")
    client.create_topic(broker.address, topic, PARTITIONS, KEEPS_TIMES)
    count = RECORDS[client.name]
    sent = mixed_records(client, count, PARTITIONS, seed=len(compression))
    offsets = client.produce(broker.address, topic, sent, {"compression.type": compression})
    received = by_partition(read_all(client, broker.address, topic, dict.fromkeys(range(PARTITIONS), EARLIEST), count))
    for partition in range(PARTITIONS):
        found = received[partition]
        assert as_sent(found) == sent[partition::PARTITIONS]
        assert [record.offset for record in found] == offsets[partition::PARTITIONS]
        assert all(low.offset < high.offset for low, high in itertools.pairwise(found))


def test_a_records_time_is_its_ids_and_its_offset_is_made_of_it(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(broker.address, topic, 1, STREAM)
    before = int(time.time() * 1000)
    client.produce(broker.address, topic, FEW, {})
    received = read_all(client, broker.address, topic, {0: EARLIEST}, 100)
    after = int(time.time() * 1000) + 1
    assert [record.value for record in received] == [record.value for record in FEW]
    assert all(before <= record.timestamp <= after for record in received)
    assert all(record.offset >> 10 == record.timestamp for record in received)
    with client.consumer(broker.address, {}) as consumer:
        assert consumer.offsets_at(topic, {0: before}) == {0: received[0].offset}
        assert consumer.offsets_at(topic, {0: after + 60_000}) == {0: None}
        assert consumer.bounds(topic, 0) == (received[0].offset, received[-1].offset + 1)


def test_clients_see_append_time_however_many_milliseconds_a_batch_spans(
    broker: BrokerProcess, topic: str, database: Any
) -> None:
    CONFLUENT.create_topic(broker.address, topic, 1, STREAM)
    CONFLUENT.produce(broker.address, topic, FEW * 30, {"linger.ms": 100})
    for number in range(20):
        database.xadd(key_of(topic), {"value": number, "timestamp": 1000})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.address, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[confluent_kafka.Message] = []
    while len(found) < 3_020:
        found += consumer.consume(3_020 - len(found), 10.0)
    consumer.close()
    assert {message.timestamp()[0] for message in found} == {confluent_kafka.TIMESTAMP_LOG_APPEND_TIME}
    assert all(message.timestamp()[1] == (message.offset() or 0) >> 10 for message in found)
    assert len({message.timestamp()[1] for message in found}) > 2


def test_records_are_read_from_an_offset_and_after_a_seek(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, KEEPS_TIMES)
    offsets = client.produce(broker.address, topic, FEW, {})
    with client.consumer(broker.address, {}) as consumer:
        for start in (37, 99, 0, 50):
            consumer.assign(topic, {0: offsets[start]})
            assert as_sent(consumer.read(100 - start)) == FEW[start:]


def test_an_xadd_is_a_record_and_wakes_a_waiting_reader(
    broker: BrokerProcess, client: Client, topic: str, database: Any
) -> None:
    wait_s = 25
    name = "fetch.wait.max.ms" if client.name == "confluent-kafka" else "fetch.max.wait.ms"
    client.create_topic(broker.address, topic, 1, STREAM)
    with client.consumer(broker.address, {name: wait_s * 1_000}) as consumer:
        consumer.assign(topic, {0: EARLIEST})
        assert consumer.poll(1.0) == []  # the fetch is on its way, and waits
        for number in range(3):
            fields = {"value": f"hello {number}", "key": "k", "h:from": "redis"}
            identity = database.xadd(key_of(topic), fields).decode()
            began = time.monotonic()
            [record] = consumer.read(1, timeout_s=wait_s)
            assert time.monotonic() - began < wait_s / 5
            assert (record.key, record.value) == (b"k", b"hello %d" % number)
            assert record.headers == (("from", b"redis"),)
            ms, sequence = map(int, identity.split("-"))
            assert (record.timestamp, record.offset) == (ms, ms << 10 | sequence)


def test_redis_code_reads_what_kafka_clients_send(
    broker: BrokerProcess, client: Client, topic: str, database: Any
) -> None:
    client.create_topic(broker.address, topic, 1, STREAM)
    client.produce(broker.address, topic, [Sent(0, b"k", b"v", (("trace", b"1"), ("trace", b"2")))], {})
    [(_, fields)] = database.xrange(key_of(topic))
    assert (fields[b"key"], fields[b"value"], fields[b"h:trace"]) == (b"k", b"v", b"2")
    raw = database.execute_command("EVAL", "return redis.call('XRANGE', KEYS[1], '-', '+')[1][2]", 1, key_of(topic))
    assert raw == [b"key", b"k", b"value", b"v", b"h:trace", b"1", b"h:trace", b"2"]


def test_five_thousand_entries_of_one_millisecond_arrive_once_in_order(
    broker: BrokerProcess, client: Client, topic: str, database: Any
) -> None:
    client.create_topic(broker.address, topic, 1, STREAM)
    pipe = database.pipeline(transaction=True)
    for number in range(5_000):
        pipe.xadd(key_of(topic), {"value": number})
    pipe.execute()
    client.produce(broker.address, topic, [Sent(0, None, b"5000")], {})
    received = read_all(client, broker.address, topic, {0: EARLIEST}, 5_001)
    assert [record.value for record in received] == [b"%d" % number for number in range(5_001)]


def test_other_fields_are_json(broker: BrokerProcess, client: Client, topic: str, database: Any) -> None:
    client.create_topic(broker.address, topic, 1, STREAM)
    database.xadd(key_of(topic), {"temperature": "21.5", "unit": "°C"})
    [record] = read_all(client, broker.address, topic, {0: EARLIEST}, 1)
    assert json.loads(record.value or b"") == {"temperature": "21.5", "unit": "°C"}


def test_both_kinds_of_writers_and_readers_at_once_see_one_log(
    broker: BrokerProcess, client: Client, topic: str, database: Any
) -> None:
    """Everything arrives once, in one order, at a Kafka consumer and at a Redis reader alike."""
    client.create_topic(broker.address, topic, 1, STREAM)
    count = 1_000

    def write() -> None:
        with redis_beside(broker) as mine:
            for number in range(count):
                mine.xadd(key_of(topic), {"value": b"redis %d" % number})

    seen: list[bytes] = []

    def read() -> None:
        last = b"0-0"
        with redis_beside(broker) as mine:
            while len(seen) < 2 * count:
                for _, rows in mine.xread({key_of(topic): last}, count=500, block=1_000):
                    seen.extend(fields[b"value"] for _, fields in rows)
                    last = rows[-1][0]

    threads = [threading.Thread(target=write), threading.Thread(target=read, daemon=True)]
    for thread in threads:
        thread.start()
    sent = [Sent(0, None, b"kafka %d" % number) for number in range(count)]
    client.produce(broker.address, topic, sent, {"linger.ms": 1})
    received = [r.value for r in read_all(client, broker.address, topic, {0: EARLIEST}, 2 * count)]
    for thread in threads:
        thread.join(30)
    assert received == seen
    for name in (b"redis", b"kafka"):
        assert [v for v in received if v and v.startswith(name)] == [b"%b %d" % (name, n) for n in range(count)]


def test_an_idempotent_producer_works(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, KEEPS_TIMES)
    offsets = client.produce(broker.address, topic, FEW, {"enable.idempotence": True})
    assert offsets == sorted(set(offsets))
    assert as_sent(read_all(client, broker.address, topic, {0: EARLIEST}, 100)) == FEW


def test_a_group_goes_on_where_it_committed_and_redis_shows_its_lag_in_records(
    groups_broker: BrokerProcess, topic: str, group: str
) -> None:
    CONFLUENT.create_topic(groups_broker.address, topic, 1, STREAM)
    CONFLUENT.produce(groups_broker.address, topic, FEW, {})
    settings = {
        "bootstrap.servers": groups_broker.address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }

    def consume(count: int) -> list[bytes | None]:
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < count:
            for message in consumer.consume(count - len(found), 1.0):
                assert message.error() is None
                found.append(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    assert consume(60) == [record.value for record in FEW[:60]]
    with redis_beside(groups_broker) as database:

        def lag() -> int | None:
            groups = database.xinfo_groups(key_of(topic))
            return next((one["lag"] for one in groups if one["name"] == f"kafka:{group}".encode()), None)

        wait_until(lambda: lag() == 40, "the mirror does not show 40 records of lag")
        database.xadd(key_of(topic), {"value": "one more"})
        assert lag() == 41
        assert consume(41) == [*(record.value for record in FEW[60:]), b"one more"]
        wait_until(lambda: lag() == 0, "the mirror does not show that all was read")


def test_what_was_produced_is_there_after_a_stop_and_after_a_kill(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    CONFLUENT.create_topic(broker.address, topic, 1, KEEPS_TIMES)
    offsets = CONFLUENT.produce(broker.address, topic, FEW, {})
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        received = read_all(CONFLUENT, broker.address, topic, {0: EARLIEST}, len(offsets))
        assert [record.offset for record in received] == offsets
        more = CONFLUENT.produce(broker.address, topic, FEW, {})
        assert more[0] > offsets[-1]
        offsets += more


def test_a_broker_killed_in_the_midst_of_produces_loses_and_doubles_nothing(
    start_broker: StartBroker, topic: str
) -> None:
    """An idempotent producer goes on through two kills; Redis code writes meanwhile."""
    broker = start_broker(durability="always")
    CONFLUENT.create_topic(broker.address, topic, 1, STREAM)
    acknowledged: list[int] = []
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)
        else:
            acknowledged.append(message.offset())

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 2, "retry.backoff.max.ms": 200}
    )
    sent = 0
    with redis_beside(broker) as database:
        for kill in (True, True, False):
            goal = len(acknowledged) + 2_000
            while len(acknowledged) < goal and not failures:
                for _ in range(100):
                    producer.produce(topic, b"%d" % sent, partition=0, on_delivery=delivered)
                    sent += 1
                database.xadd(key_of(topic), {"value": "redis"})
                producer.poll(0.01)
            if kill:
                broker.kill()
                broker.start()
    producer.flush(60)
    assert failures == []
    with CONFLUENT.consumer(broker.address, {}) as consumer:
        consumer.assign(topic, {0: EARLIEST})
        found = [record for record in consumer.read(sent + sent // 100) if record.value != b"redis"]
    assert [record.value for record in found] == [b"%d" % number for number in range(sent)]
    assert [record.offset for record in found] == acknowledged


def test_a_reader_from_the_end_gets_only_what_comes_then(
    broker: BrokerProcess, client: Client, topic: str, database: Any
) -> None:
    client.create_topic(broker.address, topic, 1, STREAM)
    client.produce(broker.address, topic, FEW, {})
    with client.consumer(broker.address, {}) as consumer:
        consumer.assign(topic, {0: LATEST})
        assert consumer.poll(1.0) == []
        database.xadd(key_of(topic), {"value": "new"})
        assert [record.value for record in consumer.read(1)] == [b"new"]
