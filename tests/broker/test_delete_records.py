"""DeleteRecords over TCP, in every version."""

from __future__ import annotations

import pytest

from headrace.wire.errors import ErrorCode
from tests.broker.administrator import Administrator, new_topic, versions
from tests.broker.peers import batch_of, connect, fetch, metadata, produce, values_of
from tests.broker_process import wait_until
from tests.conftest import StartBroker, StartRedis


@pytest.fixture
def filled(administrator: Administrator, topic: str) -> str:
    """A topic of two partitions; the first has offsets 0 to 5 in two batches."""
    administrator.create(new_topic(topic, 2))
    for values in ((b"0", b"1", b"2"), (b"3", b"4", b"5")):
        produce(administrator.connection, topic, {0: batch_of(*values)})
    return topic


@pytest.mark.parametrize("version", versions(21))
def test_records_before_an_offset_are_gone(administrator: Administrator, filled: str, version: int) -> None:
    assert administrator.delete_records(filled, 0, 4, version) == (0, 4)
    assert fetch(administrator.connection, filled, {0: 3})[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = fetch(administrator.connection, filled, {0: 4})[0]
    assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 4, 6)
    assert values_of(found)[-1] == b"5"


def test_the_log_start_never_moves_back(administrator: Administrator, filled: str) -> None:
    assert administrator.delete_records(filled, 0, 4) == (0, 4)
    assert administrator.delete_records(filled, 0, 1) == (0, 4)


def test_minus_one_means_all_and_offsets_go_on(administrator: Administrator, filled: str) -> None:
    assert administrator.delete_records(filled, 0, -1) == (0, 6)
    assert administrator.delete_records(filled, 1, -1) == (0, 0)
    assert produce(administrator.connection, filled, {0: batch_of(b"6")})[0].base_offset == 6
    assert values_of(fetch(administrator.connection, filled, {0: 6})[0]) == [b"6"]


def test_what_cannot_be_deleted_is_refused(administrator: Administrator, filled: str) -> None:
    assert administrator.delete_records(filled, 0, 7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert administrator.delete_records(filled, 0, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert administrator.delete_records(filled, 2, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert administrator.delete_records(f"{filled}-none", 0, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_compacted_topic_keeps_its_records(administrator: Administrator, topic: str) -> None:
    administrator.create(new_topic(topic, configs={"cleanup.policy": "compact"}))
    assert administrator.delete_records(topic, 0, -1) == (ErrorCode.POLICY_VIOLATION, -1)


def test_only_the_leader_deletes(start_broker: StartBroker, start_redis: StartRedis, topic: str) -> None:
    redis = start_redis()
    first, second = (start_broker(redis=redis.url, node_id=number) for number in (0, 1))
    with connect(first) as one, connect(second) as two:
        here, there = Administrator(one), Administrator(two)
        wait_until(lambda: len(metadata(one).brokers) == len(metadata(two).brokers) == 2, "the brokers do not meet")
        here.create(new_topic(topic, 8))
        for number in range(8):
            codes = {here.delete_records(topic, number, -1)[0], there.delete_records(topic, number, -1)[0]}
            assert codes == {0, ErrorCode.NOT_LEADER_OR_FOLLOWER}
