"""Tiered topics through kills: of a broker beside another one, and of broker and Redis together."""

from __future__ import annotations

import shutil
from pathlib import Path
from signal import Signals

import pytest

from headrace.client import Cluster, Reader
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, encode_batch
from headrace.wire.special_times import EARLIEST
from tests.broker.peers import connect, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.test_two_brokers import LEASE_MS, nodes_of
from tests.tiered import BROKER, TieredTopic, value_of

RECORDS = 400
MARGIN = 1_000_000
"""How far a log goes on behind its end after a crash of broker and store together."""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    made = tmp_path / "lake"
    made.mkdir()
    return made


def read_all(addresses: str, topic: str) -> dict[int, list[tuple[int, bytes | None]]]:
    """Offset and value of all records, by partition."""
    found: dict[int, list[tuple[int, bytes | None]]] = {}
    with Cluster(addresses) as cluster:
        for _, partition, record in Reader(cluster).read({(topic, p): EARLIEST for p in (0, 1, 2, 3)}):
            found.setdefault(partition, []).append((record.offset, record.value))
    return found


def produced_at(broker: BrokerProcess, topic: str, partition: int) -> int:
    """The offset that a record gets once the broker takes one; a retriable error asks for another try."""
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"after the crash")])
    offsets: list[int] = []

    def is_taken() -> bool:
        with connect(broker) as connection:
            answer = produce(connection, topic, {partition: batch})[partition]
        assert answer.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        offsets.append(answer.base_offset)
        return answer.error_code == 0

    wait_until(is_taken, "the broker takes no records")
    return offsets[-1]


@pytest.mark.faults
def test_another_broker_takes_over_both_parts(
    start_broker: StartBroker, start_redis: StartRedis, lake: Path, topic: str
) -> None:
    settings = {**BROKER, "redis": start_redis().url, "lake": lake, "node_lease_ms": LEASE_MS}
    one, two = start_broker(node_id=1, **settings), start_broker(node_id=2, **settings)
    wait_until(lambda: nodes_of(one) == nodes_of(two) == {1, 2}, "the brokers do not know each other")
    tiered = TieredTopic(one, lake, topic, partitions=4)
    tiered.fill(RECORDS)
    expected = {p: [(at, value_of(at)) for at in range(RECORDS)] for p in tiered.partitions}
    assert read_all(f"{one.address},{two.address}", topic) == expected
    one.kill()
    wait_until(lambda: nodes_of(two) == {2}, "the broker that was killed still counts")
    tiered.broker = two
    assert read_all(two.address, topic) == expected
    assert tiered.starts() == [(0, RECORDS // 2)] * 4
    tiered.archive()
    tiered.produce(100, first=RECORDS)
    tiered.wait_until_local_from(RECORDS)
    expected = {p: [(at, value_of(at)) for at in range(RECORDS + 100)] for p in tiered.partitions}
    assert read_all(two.address, topic) == expected


def test_a_crash_that_loses_what_the_lake_has_uses_no_offset_twice_and_loses_nothing(
    start_broker: StartBroker, start_redis: StartRedis, lake: Path, topic: str, tmp_path: Path
) -> None:
    redis = start_redis()
    broker = start_broker(**BROKER, redis=redis.url, lake=lake)
    tiered = TieredTopic(broker, lake, topic, partitions=4)
    tiered.fill(RECORDS)
    shutil.copytree(redis.directory, tmp_path / "checkpoint")
    tiered.produce(100, first=RECORDS)
    tiered.archive()
    broker.kill()
    redis.stop(Signals.SIGKILL)
    shutil.rmtree(redis.directory)
    shutil.copytree(tmp_path / "checkpoint", redis.directory)
    redis.start()
    broker.start()
    end = RECORDS + 100
    next_offset = end + MARGIN  # neither Redis nor the lake can tell what else was given out
    assert [produced_at(broker, topic, p) for p in tiered.partitions] == [next_offset] * 4
    expected = [(at, value_of(at)) for at in range(end)] + [(next_offset, b"after the crash")]
    assert read_all(broker.address, topic) == dict.fromkeys(tiered.partitions, expected)
    table = tiered.archive()
    assert [table.position(p) for p in tiered.partitions] == [next_offset + 1] * 4
