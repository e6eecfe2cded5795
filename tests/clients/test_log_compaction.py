"""Compacted topics in the default format, as every client sees them: also while they are compacted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess, wait_until
from tests.clients.adapters import CLIENTS
from tests.clients.client import EARLIEST, Client, Sent
from tests.clients.mixed_records import FIRST_TIMESTAMP
from tests.clients.test_round_trip import read_all
from tests.conftest import StartBroker
from tests.stores import broker_settings, crash_store, redis_beside

admin: Any = import_module("confluent_kafka.admin")
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
EAGER = {
    "compaction_check_interval_ms": 50,
    "retention_check_interval_ms": 50,
    "store_wait_ms": 100,
    "store_timeout_ms": 400,
}
"""Compacts whatever is half a second old."""
KEYS, ROUNDS = 50, 40
LAST = Sent(0, b"last", b"", (), FIRST_TIMESTAMP)
"""The last entry of a log stays: what is before it is compacted."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that compacts often."""
    process = BrokerProcess(tmp_path_factory.mktemp("compacting") / "data", **EAGER, **broker_settings())
    try:
        yield process.start()
    finally:
        process.end()


def updates(rounds: int = ROUNDS, first: int = 0) -> list[Sent]:
    numbers = range(KEYS * first, KEYS * (first + rounds))
    return [Sent(0, b"k%d" % (n % KEYS), b"v%d" % n, (("n", b"%d" % n),), FIRST_TIMESTAMP + n) for n in numbers]


def clean_end(broker: BrokerProcess, database: Any, topic: str) -> int:
    """How far a partition was compacted, and trimmed."""
    prefix = broker.settings.get("key_prefix", "headrace")  # other brokers of the run have topics of the same name
    # `keys` asks one server of a cluster
    [meta] = database.scan_iter(f"{prefix}:*{{{topic}:0:*}}:meta", count=1_000)
    stored = database.hget(meta, "clean")
    border = int(stored.split(b'"end":')[1].split(b",")[0]) if stored else 0
    entries = database.xrange(meta.replace(b":meta", b":log"), count=1)
    return border if int(entries[0][0].split(b"-")[0]) >= border else 0


def wait_for_compaction(broker: BrokerProcess, topic: str, end: int) -> None:
    with redis_beside(broker) as database:
        wait_until(lambda: clean_end(broker, database, topic) == end, f"{topic} is not compacted up to {end}")


def test_the_last_value_of_each_key_is_left_for_every_client(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, COMPACTED)
    client.produce(broker.address, topic, updates(), {"compression.type": "gzip"})
    client.produce(broker.address, topic, [LAST], {})
    total = KEYS * ROUNDS
    wait_for_compaction(broker, topic, total)
    for position in (EARLIEST, 1, KEYS, total - KEYS):
        received = read_all(client, broker.address, topic, {0: position}, KEYS + 1)
        assert [r.offset for r in received] == list(range(total - KEYS, total + 1))
        assert [(r.key, r.value, r.headers, r.timestamp) for r in received[:KEYS]] == [
            sent[1:] for sent in updates(1, ROUNDS - 1)
        ]


def test_times_are_looked_up_among_what_is_left(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(broker.address, topic, 1, COMPACTED)
    client.produce(broker.address, topic, updates(), {})
    client.produce(broker.address, topic, [LAST], {})
    total = KEYS * ROUNDS
    wait_for_compaction(broker, topic, total)
    with client.consumer(broker.address, {}) as consumer:
        for time, expected in ((0, total - KEYS), (total - 7, total - 7)):
            assert consumer.offsets_at(topic, {0: FIRST_TIMESTAMP + time}) == {0: expected}
        assert consumer.bounds(topic, 0) == (0, total + 1)


def test_whoever_reads_during_compactions_misses_no_last_value(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(broker.address, topic, 1, COMPACTED)
    rounds = 12
    with client.consumer(broker.address, {"max.partition.fetch.bytes": 2_000}) as consumer:
        state: dict[bytes | None, bytes | None] = {}
        position = 0
        for number in range(rounds):
            client.produce(broker.address, topic, updates(4, number * 4), {})
            consumer.assign(topic, {0: position})
            for record in consumer.read(KEYS if number % 3 else 1):
                assert record.offset >= position
                position, state[record.key] = record.offset + 1, record.value
        client.produce(broker.address, topic, [LAST], {})
        wait_for_compaction(broker, topic, KEYS * rounds * 4)
        consumer.assign(topic, {0: position})
        while LAST.key not in state:
            for record in consumer.poll(1.0):
                assert record.offset >= position
                position, state[record.key] = record.offset + 1, record.value
    assert state == {sent.key: sent.value for sent in [*updates(1, rounds * 4 - 1), LAST]}


def test_a_group_that_stopped_inside_what_is_gone_reads_on_behind_it(broker: BrokerProcess, topic: str) -> None:
    client = CLIENTS[0]
    client.create_topic(broker.address, topic, 1, COMPACTED)
    client.produce(broker.address, topic, updates(), {})
    settings = {"bootstrap.servers": broker.address, "group.id": topic, "auto.offset.reset": "earliest"}
    stopped_at = confluent_kafka.TopicPartition(topic, 0, KEYS + 7)
    consumer = confluent_kafka.Consumer(settings)
    consumer.commit(offsets=[stopped_at], asynchronous=False)
    client.produce(broker.address, topic, [LAST], {})
    total = KEYS * ROUNDS
    wait_for_compaction(broker, topic, total)
    consumer.subscribe([topic])
    read = consumer.consume(KEYS + 1, timeout=60)
    assert [message.offset() for message in read] == list(range(total - KEYS, total + 1))
    assert consumer.committed([stopped_at])[0].offset == KEYS + 7
    consumer.close()


def test_what_is_left_survives_kills_of_broker_and_store(start_broker: StartBroker) -> None:
    broker, client = start_broker(durability="always", **EAGER), CLIENTS[0]
    client.create_topic(broker.address, "orders", 1, COMPACTED)
    client.produce(broker.address, "orders", [*updates(), LAST], {"linger.ms": 0})
    client.produce(broker.address, "orders", [LAST], {})
    total = KEYS * ROUNDS
    wait_for_compaction(broker, "orders", total + 1)
    broker.kill()
    crash_store(broker)
    broker.start()
    received = read_all(client, broker.address, "orders", {0: EARLIEST}, KEYS + 2)
    assert [r.offset for r in received] == list(range(total - KEYS, total + 2))
    assert client.produce(broker.address, "orders", [LAST], {})[0] >= total + 2


def test_old_records_of_a_compacted_topic_with_delete_go_by_retention(broker: BrokerProcess, topic: str) -> None:
    client = CLIENTS[0]
    both = COMPACTED | {"cleanup.policy": "compact,delete"}
    client.create_topic(broker.address, topic, 1, both)
    now_ms = int(time.time() * 1000)
    client.produce(broker.address, topic, [Sent(0, b"old %d" % n, b"v", (), now_ms - 90_000) for n in range(9)], {})
    client.produce(broker.address, topic, [Sent(0, b"new", b"v", (), now_ms)], {})
    client.produce(broker.address, topic, [Sent(0, b"last", b"v", (), now_ms)], {})
    wait_for_compaction(broker, topic, 10)
    change = admin.ConfigEntry("retention.ms", "50000", incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    administrator = admin.AdminClient({"bootstrap.servers": broker.address})  # its answers need it to live
    administrator.incremental_alter_configs([resource])[resource].result()
    with client.consumer(broker.address, {}) as consumer:
        wait_until(lambda: consumer.bounds(topic, 0)[0] > 0, "the log start does not move")
    assert [r.key for r in read_all(client, broker.address, topic, {0: EARLIEST}, 2)] == [b"new", b"last"]


def test_aborted_records_replace_nothing_and_an_open_transaction_holds_compaction_back(
    broker: BrokerProcess, topic: str
) -> None:
    CLIENTS[0].create_topic(broker.address, topic, 1, COMPACTED)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(60)

    def transaction(value: bytes, *, commits: bool) -> None:
        producer.begin_transaction()
        for key in (b"a", b"b"):
            producer.produce(topic, value, key, partition=0)
            producer.flush(60)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)

    transaction(b"first", commits=True)
    transaction(b"second", commits=True)
    transaction(b"aborted", commits=False)
    producer.begin_transaction()
    producer.produce(topic, b"open", b"a", partition=0)
    producer.flush(60)
    CLIENTS[0].produce(broker.address, topic, [Sent(0, b"c", b"1", (), FIRST_TIMESTAMP), LAST], {})
    CLIENTS[0].produce(broker.address, topic, [LAST], {})
    wait_for_compaction(broker, topic, 9)  # three times two records and a marker
    for level, values in (("read_committed", [b"second"] * 2), ("read_uncommitted", [b"second", b"second", b"open"])):
        with CLIENTS[0].consumer(broker.address, {"isolation.level": level}) as consumer:
            consumer.assign(topic, {0: EARLIEST})
            found = [r for r in consumer.read(len(values)) if r.key in (b"a", b"b")]
            assert [r.value for r in found] == values
    producer.commit_transaction(60)
    with CLIENTS[0].consumer(broker.address, {"isolation.level": "read_committed"}) as consumer:
        consumer.assign(topic, {0: EARLIEST})
        state = {r.key: r.value for r in consumer.read(3)}  # what the open one replaced may be gone by now
        assert (state[b"a"], state[b"b"]) == (b"open", b"second")
