"""Redis that is away, or silent: requests get an error that clients retry, connections live, and all comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from signal import Signals

import pytest

from headrace.client.connection import BrokerConnection
from headrace.client.errors import RETRIABLE
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.members import LOAD_IN_PROGRESS, commit, fetch_offsets
from tests.broker.peers import IdempotentProducer, batch_of, connect, fetch, fetch_request, metadata, produce, values_of
from tests.broker_process import BrokerProcess, RedisProcess, wait_until
from tests.conftest import StartBroker, StartRedis


@pytest.fixture
def redis(start_redis: StartRedis) -> RedisProcess:
    return start_redis("always")


@pytest.fixture
def broker(start_broker: StartBroker, redis: RedisProcess) -> BrokerProcess:
    return start_broker(redis=redis.url, store_timeout_ms=500, store_wait_ms=300)


@pytest.fixture
def connection(broker: BrokerProcess, topic: str) -> Iterator[BrokerConnection]:
    """A connection to a topic with one record."""
    with connect(broker) as found:
        metadata(found, topic)
        assert produce(found, topic, {0: batch_of(b"before")})[0].error_code == 0
        yield found


def list_latest(connection: BrokerConnection, topic: str) -> int:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = connection.send_for(ListOffsetsRequest(topics=[asked]), ListOffsetsResponse, 7)
    return answer.topics[0].partitions[0].error_code


def requests_fail_retriably(connection: BrokerConnection, topic: str) -> None:
    """Produce, fetch and ListOffsets on a connection that stays open."""
    assert produce(connection, topic, {0: batch_of(b"lost")})[0].error_code in RETRIABLE
    assert fetch(connection, topic, {0: 0}, max_wait_ms=10_000, min_bytes=1)[0].error_code in RETRIABLE
    assert list_latest(connection, topic) in RETRIABLE
    assert list_latest(connection, topic + "-unheard-of") in RETRIABLE
    assert produce(connection, topic + "-unheard-of", {0: batch_of(b"lost")})[0].error_code in RETRIABLE
    assert fetch(connection, topic + "-unheard-of", {0: 0})[0].error_code in RETRIABLE
    assert metadata(connection, topic).topics[0].error_code == 0
    connection.send(ApiVersionsRequest("client", "1"), 3)


def everything_works_again(connection: BrokerConnection, topic: str) -> None:
    wait_until(
        lambda: produce(connection, topic, {0: batch_of(b"after")})[0].error_code == 0, "produce does not recover"
    )
    values = values_of(fetch(connection, topic, {0: 0})[0])
    assert (values[0], values[-1]) == (b"before", b"after")
    assert list_latest(connection, topic) == 0


@pytest.mark.parametrize("number", [Signals.SIGTERM, Signals.SIGKILL])
def test_requests_are_refused_for_now_while_redis_is_gone(
    redis: RedisProcess, broker: BrokerProcess, connection: BrokerConnection, topic: str, number: Signals
) -> None:
    with connect(broker) as idle:
        idle.send(ApiVersionsRequest("client", "1"), 3)
        redis.stop(number)
        requests_fail_retriably(connection, topic)
        redis.start()
        everything_works_again(connection, topic)
        idle.send(ApiVersionsRequest("client", "1"), 3)
    assert '"a request failed' not in broker.log


def test_requests_are_refused_for_now_while_redis_is_silent(
    redis: RedisProcess, broker: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    redis.send_signal(Signals.SIGSTOP)
    requests_fail_retriably(connection, topic)
    redis.send_signal(Signals.SIGCONT)
    everything_works_again(connection, topic)
    assert '"a request failed' not in broker.log


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9])
def test_committed_offsets_are_not_answered_from_memory_but_with_an_error_that_consumers_retry(
    redis: RedisProcess, connection: BrokerConnection, topic: str, group: str, version: int
) -> None:
    """To Java's consumer 15 is fatal, and aiokafka's looks for errors in partitions only."""
    assert commit(connection, group, topic, {0: 7}) == {0: 0}
    redis.stop(Signals.SIGKILL)
    loading, rows = fetch_offsets(connection, group, {topic: [0]}, version)
    assert loading == (LOAD_IN_PROGRESS if version > 1 else 0)
    assert rows == ({(topic, 0): (-1, -1, "", LOAD_IN_PROGRESS)} if version < 8 else {})
    redis.start()
    wait_until(
        lambda: fetch_offsets(connection, group, {topic: [0]}, version) == (0, {(topic, 0): (7, -1, "", 0)}),
        "the offset is not answered again",
    )


def test_a_fetch_whose_answer_does_not_come_gets_an_error_that_consumers_expect(
    start_broker: StartBroker, redis: RedisProcess, topic: str
) -> None:
    """Of a timeout Java's consumer knows nothing: it would throw."""
    broker = start_broker(redis=redis.url, store_timeout_ms=300, tail_cache_bytes=0)
    with connect(broker) as connection:
        metadata(connection, topic)
        produce(connection, topic, {0: batch_of(b"before")})
        redis.send_signal(Signals.SIGSTOP)
        assert fetch(connection, topic, {0: 0})[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        redis.send_signal(Signals.SIGCONT)


@pytest.fixture
def refused(redis: RedisProcess, connection: BrokerConnection, topic: str) -> IdempotentProducer:
    """A producer whose batch 0 is in the log, and whose batch 1 was refused while the store was away."""
    producer = IdempotentProducer(connection, topic)
    assert producer.send(0)[0] == 0
    redis.stop()
    assert producer.send(1)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    redis.start()
    everything_works_again(connection, topic)
    return producer


def test_what_a_producer_had_sent_behind_a_refused_batch_is_refused_alike(refused: IdempotentProducer) -> None:
    """Told of a gap in its sequence, librdkafka would send what it is not sure of under a new epoch, and double it."""
    assert {refused.send(2)[0], refused.send(3)[0]} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert [refused.send(sequence)[0] for sequence in (1, 2, 3)] == [0, 0, 0]
    assert values_of(fetch(refused.connection, refused.topic, {0: 0})[0])[-3:] == [b"1", b"2", b"3"]
    assert refused.send(5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_goes_on_behind_a_refused_batch_is_told_of_the_gap(refused: IdempotentProducer) -> None:
    """Four batches can have been on their way; the next was sent by a client that knew."""
    errors = [refused.send(sequence)[0] for sequence in range(2, 7)]
    assert errors == [*[ErrorCode.KAFKA_STORAGE_ERROR] * 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_waiting_fetch_ends_when_redis_goes_and_the_next_one_goes_on(
    redis: RedisProcess, broker: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    redis.stop()
    redis.start()

    def reads_on() -> bool:
        return values_of(fetch(connection, topic, {0: 0})[0]) == [b"before"]

    wait_until(reads_on, "fetch does not recover")
    with connect(broker) as other:
        wait_until(lambda: produce(other, topic, {0: batch_of(b"after")})[0].error_code == 0, "produce is stuck")
    assert values_of(fetch(connection, topic, {0: 1}, max_wait_ms=20_000, min_bytes=1)[0]) == [b"after"]


@pytest.mark.faults
def test_a_store_that_is_busy_answering_is_not_taken_for_silent(start_broker: StartBroker, topic: str) -> None:
    """Replies that queue up behind large ones take longer than the timeout, yet something arrives all the time."""
    broker = start_broker(store_timeout_ms=300, tail_cache_bytes=0)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(connect(broker)) for _ in range(20)]
        metadata(readers[0], topic)
        for _ in range(40):
            produce(readers[0], topic, {0: batch_of(bytes(1_000_000))})
        for reader in readers:
            reader.ask(fetch_request(topic, {0: 0}, partition_max_bytes=50 << 20), 12)
        for reader in readers:
            answer = reader.receive()
            assert isinstance(answer, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == 0
    assert "no reply for" not in broker.log
