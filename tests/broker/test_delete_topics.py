"""DeleteTopics over TCP, in every version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.schema import ZERO_UUID
from tests.broker.administrator import Administrator, new_topic, versions
from tests.broker.peers import batch_of, connect, fetch, fetch_request, metadata, produce, values_of
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis

IDS_SINCE, MESSAGES_SINCE = 6, 5
FETCH_BY_NAME = 12


def delete(administrator: Administrator, version: int, *names: str) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), 5_000)
    return administrator.connection.send_for(request, DeleteTopicsResponse, version).responses


def delete_states(administrator: Administrator, *states: DeleteTopicState) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(list(states), timeout_ms=5_000)
    return administrator.connection.send_for(request, DeleteTopicsResponse, IDS_SINCE).responses


@pytest.mark.parametrize("version", versions(20))
def test_a_topic_is_deleted_by_name(administrator: Administrator, topic: str, version: int) -> None:
    created = administrator.create(topic)
    deleted, unknown = delete(administrator, version, topic, f"{topic}-unknown")
    assert (deleted.name, deleted.error_code) == (topic, 0)
    assert deleted.topic_id == (created.topic_id if version >= IDS_SINCE else ZERO_UUID)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bool(unknown.error_message) is (version >= MESSAGES_SINCE)
    assert administrator.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_by_id(administrator: Administrator, topic: str) -> None:
    created = administrator.create(topic)
    (deleted,) = delete_states(administrator, DeleteTopicState(None, created.topic_id))
    assert (deleted.name, deleted.topic_id, deleted.error_code) == (topic, created.topic_id, 0)
    (unknown,) = delete_states(administrator, DeleteTopicState(None, created.topic_id))
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_what_names_no_one_topic_is_refused(administrator: Administrator, topic: str) -> None:
    created = administrator.create(topic)
    by_id, by_name = DeleteTopicState(None, created.topic_id), DeleteTopicState(topic)
    for states, words in (
        ([DeleteTopicState(None)], "Neither topic name nor id were specified."),
        ([DeleteTopicState(topic, created.topic_id)], "You may not specify both topic name and topic id."),
        ([by_id, by_id], "Duplicate topic id."),
        ([by_name, by_name], "Duplicate topic name."),
    ):
        (result,) = delete_states(administrator, *states)
        assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, words)
    assert administrator.describe(topic).error_code == 0


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (4, 73), (5, 73), (6, 73)])
def test_deletion_can_be_switched_off(no_deletion: BrokerProcess, version: int, code: int) -> None:
    with connect(no_deletion) as connection:
        administrator = Administrator(connection)
        administrator.create("kept")
        (result,) = delete(administrator, version, "kept")
        assert result.error_code == code
        assert administrator.describe("kept").error_code == 0


@pytest.fixture(scope="module")
def no_deletion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that deletes nothing."""
    process = BrokerProcess(tmp_path_factory.mktemp("no-deletion") / "data", delete_topics_enabled=False)
    yield process.start()
    process.end()


def test_a_recreated_topic_is_another_one(administrator: Administrator, topic: str) -> None:
    first = administrator.create(topic)
    produce(administrator.connection, topic, {0: batch_of(b"old")})
    delete(administrator, 6, topic)
    second = administrator.create(topic)
    assert first.topic_id != second.topic_id
    assert produce(administrator.connection, topic, {0: batch_of(b"new")})[0].base_offset == 0
    assert values_of(fetch(administrator.connection, topic, {0: 0})[0]) == [b"new"]


def test_a_long_poll_ends_when_its_topic_is_deleted(
    administrator: Administrator, broker: BrokerProcess, topic: str
) -> None:
    administrator.create(topic)
    produce(administrator.connection, topic, {0: batch_of(b"one")})
    with connect(broker, timeout_s=10) as reader:
        reader.ask(fetch_request(topic, {0: 1}, max_wait_ms=60_000, min_bytes=1), FETCH_BY_NAME)
        delete(administrator, 6, topic)
        answer = reader.receive()
        assert isinstance(answer, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_long_poll_ends_when_another_broker_deletes_its_topic(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    server = start_redis()
    brokers = [start_broker(redis=server.url, node_id=number) for number in (0, 1)]
    with connect(brokers[0]) as one, connect(brokers[1]) as two, connect(brokers[1], timeout_s=10) as reader:
        wait_until(lambda: len(metadata(one).brokers) == len(metadata(two).brokers) == 2, "the brokers do not meet")
        Administrator(one).create(new_topic("gone", 16))
        led = next(p.partition_index for p in metadata(two, "gone").topics[0].partitions if p.leader_id == 1)
        assert fetch(two, "gone", {led: 0})[led].error_code == 0
        reader.ask(fetch_request("gone", {led: 0}, max_wait_ms=60_000, min_bytes=1), FETCH_BY_NAME)
        delete(Administrator(one), 6, "gone")
        assert Administrator(two).describe("gone").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = reader.receive()
        assert isinstance(answer, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("format", ["log", "stream"])
def test_a_recreated_topic_is_another_one_at_every_broker(
    start_broker: StartBroker, start_redis: StartRedis, format: str
) -> None:
    server = start_redis()
    brokers = [start_broker(redis=server.url, node_id=number) for number in (0, 1)]
    with connect(brokers[0]) as one, connect(brokers[1]) as two:
        wait_until(lambda: len(metadata(one).brokers) == len(metadata(two).brokers) == 2, "the brokers do not meet")
        administrator, asked = Administrator(one), new_topic("again", 4, configs={"headrace.format": format})
        for _ in range(5):
            old = administrator.create(asked).topic_id
            led = [p.partition_index for p in metadata(two, "again").topics[0].partitions if p.leader_id == 1]
            written = produce(two, "again", {number: batch_of(b"old") for number in led})
            assert not any(answer.error_code for answer in written.values())
            assert all(values_of(data) == [b"old"] for data in fetch(two, "again", dict.fromkeys(led, 0)).values())
            delete(administrator, 6, "again")
            new = administrator.create(asked).topic_id
            assert not any(values_of(data) for data in fetch(two, "again", dict.fromkeys(led, 0)).values())
            assert metadata(two, "again").topics[0].topic_id == new != old
            delete(administrator, 6, "again")


def test_nothing_of_a_deleted_topic_stays_in_the_store(start_broker: StartBroker, start_redis: StartRedis) -> None:
    server = start_redis()
    keys = redis.Redis.from_url(server.url)
    with connect(start_broker(redis=server.url)) as connection:
        administrator = Administrator(connection)
        administrator.create_all([new_topic("first", 3), new_topic("second", 3)])
        produce(connection, "first", {number: batch_of(b"x") for number in range(3)})
        assert keys.keys("*{first:*")
        results = delete(administrator, 6, "first", "second")
        assert [result.error_code for result in results] == [0, 0]
        assert keys.keys("*{first:*") == keys.keys("*{second:*") == []
