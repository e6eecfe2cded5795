"""Fetch over the raw protocol: limits, waiting, positions. Each holds from the tail cache and from Redis alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.records import Record, encode_batch
from tests.broker.peers import (
    batch_of,
    connect,
    create_topic,
    fetch,
    fetch_request,
    memory_grows_less_than,
    metadata,
    produce,
    records_of,
    size_of,
    values_of,
)
from tests.broker_process import BrokerProcess
from tests.redis_view import RedisView

LONG_MS = 30_000
"""A wait that no test sits out: whoever gets an answer before was woken."""


@pytest.fixture(scope="module")
def cacheless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that reads everything from Redis."""
    process = BrokerProcess(tmp_path_factory.mktemp("cacheless") / "data", tail_cache_bytes=0)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(params=["from the cache", "from Redis"])
def serving(request: pytest.FixtureRequest, broker: BrokerProcess) -> BrokerProcess:
    if request.param == "from the cache":
        return broker
    found: BrokerProcess = request.getfixturevalue("cacheless")
    return found


@pytest.fixture
def connection(serving: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(serving) as found:
        yield found


def fill(connection: BrokerConnection, topic: str, batches: int, partitions: int = 1, size_bytes: int = 1_000) -> int:
    """Puts batches of one record into each partition; the size of one of them."""
    create_topic(connection, topic, partitions)
    for number in range(batches):
        values = {index: batch_of(b"%d.%d " % (index, number) + bytes(size_bytes)) for index in range(partitions)}
        assert all(answer.error_code == 0 for answer in produce(connection, topic, values).values())
    return len(batch_of(b"0.0 " + bytes(size_bytes)))


# -- positions ----------------------------------------------------------------------------------------------------


def test_an_offset_inside_a_batch_brings_that_whole_batch(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    produce(connection, topic, {0: batch_of(b"a", b"b", b"c")})
    produce(connection, topic, {0: batch_of(b"d", b"e")})
    for offset, expected in enumerate([b"abcde", b"abcde", b"abcde", b"de", b"de", b""]):
        assert b"".join(v or b"" for v in values_of(fetch(connection, topic, {0: offset})[0])) == expected


@pytest.mark.parametrize("offset", [-1, -(1 << 63), 4, 1 << 40])
def test_an_offset_outside_the_log_is_out_of_range_and_answered_at_once(
    connection: BrokerConnection, topic: str, offset: int
) -> None:
    fill(connection, topic, 3)
    data = fetch(connection, topic, {0: offset}, max_wait_ms=LONG_MS, min_bytes=1)[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_is_not_called_out_of_range_without_a_look_at_the_store(
    serving: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    """For a moment two nodes may both lead, and a consumer that read at one goes on at the other."""
    fill(connection, topic, 1)
    fetch(connection, topic, {0: 0})
    foreign = encode_batch([Record(offset, 0, None, b"by another") for offset in (1, 2)], base_offset=1)
    with RedisView.of(serving) as redis:
        redis.call("XADD", redis.log_key(topic), "1-1", "b", foreign, "w", "another")
    data = fetch(connection, topic, {0: 3})[0]
    assert (data.error_code, data.high_watermark) == (0, 3)


def test_what_is_not_there_gets_its_own_error_beside_what_is(connection: BrokerConnection, topic: str) -> None:
    fill(connection, topic, 1)
    found = fetch(connection, topic, {0: 0, 5: 0, -1: 0})
    assert {index: data.error_code for index, data in found.items()} == {0: 0, 5: 3, -1: 3}
    assert len(records_of(found[0])) == 1
    assert fetch(connection, topic + "-nowhere", {0: 0})[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(connection: BrokerConnection, topic: str, version: int) -> None:
    fill(connection, topic, 3)
    request = fetch_request(topic, {0: 1})
    if version >= 13:
        request.topics[0].topic_id = metadata(connection, topic).topics[0].topic_id
    (answer,) = connection.send_for(request, FetchResponse, version).responses
    (data,) = answer.partitions
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert [record.offset for record in records_of(data)] == [1, 2]


def test_an_unknown_topic_id_is_named_so(connection: BrokerConnection) -> None:
    request = fetch_request("", {0: 0})
    request.topics[0].topic_id = bytes(range(16))
    (answer,) = connection.send_for(request, FetchResponse, 13).responses
    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_leader_epoch_from_the_future_is_refused(connection: BrokerConnection, topic: str) -> None:
    fill(connection, topic, 1)
    request = fetch_request(topic, {0: 0})
    for epoch, code in ((-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request.topics[0].partitions[0].current_leader_epoch = epoch
        (answer,) = connection.send_for(request, FetchResponse, 12).responses
        assert answer.partitions[0].error_code == code


# -- limits -------------------------------------------------------------------------------------------------------


def test_a_partition_gets_whole_batches_up_to_its_limit(connection: BrokerConnection, topic: str) -> None:
    size = fill(connection, topic, 10)
    for limit, expected in ((3 * size, 3), (3 * size + size // 2, 3), (4 * size - 1, 3), (20 * size, 10)):
        assert len(records_of(fetch(connection, topic, {0: 0}, partition_max_bytes=limit)[0])) == expected


@pytest.mark.parametrize("limit", [0, 1, 500])
def test_the_first_batch_comes_although_it_is_larger_than_any_limit(
    connection: BrokerConnection, topic: str, limit: int
) -> None:
    size = fill(connection, topic, 3, partitions=2)
    found = fetch(connection, topic, {0: 1, 1: 1}, max_bytes=limit, partition_max_bytes=limit)
    assert size_of(found[0]) == size
    assert size_of(found[1]) == 0
    found = fetch(connection, topic, {0: 3, 1: 1}, max_bytes=limit, partition_max_bytes=limit)
    assert (size_of(found[0]), size_of(found[1])) == (0, size)


def test_the_limit_of_the_request_holds_over_all_partitions(connection: BrokerConnection, topic: str) -> None:
    size = fill(connection, topic, 5, partitions=4)
    found = fetch(connection, topic, dict.fromkeys(range(4), 0), max_bytes=7 * size)
    assert sum(size_of(data) for data in found.values()) <= 7 * size
    assert size_of(found[0]) == 5 * size
    assert len(found) == 4


def test_the_brokers_own_limit_holds_whatever_the_client_asks(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic, partitions=2)
    for _ in range(33):
        produce(connection, topic, {0: batch_of(bytes(1_000_000)), 1: batch_of(bytes(1_000_000))})
    everything = {"max_bytes": (1 << 31) - 1, "partition_max_bytes": (1 << 31) - 1}
    found = fetch(connection, topic, {0: 0, 1: 0}, **everything)
    assert 30 << 20 < size_of(found[0]) + size_of(found[1]) <= 55 << 20


# -- waiting ------------------------------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_and_then_comes_back_empty(connection: BrokerConnection, topic: str) -> None:
    fill(connection, topic, 1)
    began = time.monotonic()
    data = fetch(connection, topic, {0: 1}, max_wait_ms=200, min_bytes=1)[0]
    assert time.monotonic() - began > 0.1
    assert (data.error_code, values_of(data), data.high_watermark) == (0, [], 1)


def test_without_a_minimum_nothing_is_waited_for(connection: BrokerConnection, topic: str) -> None:
    fill(connection, topic, 1)
    assert values_of(fetch(connection, topic, {0: 1}, max_wait_ms=LONG_MS, min_bytes=0)[0]) == []


def test_a_waiting_fetch_is_woken_by_a_produce(
    serving: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    fill(connection, topic, 1, partitions=3)
    connection.ask(fetch_request(topic, {0: 1, 1: 1, 2: 1}, max_wait_ms=LONG_MS, min_bytes=1), 12)
    with connect(serving) as other:
        produce(other, topic, {2: batch_of(b"news")})
    answer = connection.receive()
    assert isinstance(answer, FetchResponse)
    found = {data.partition_index: values_of(data) for data in answer.responses[0].partitions}
    assert found == {0: [], 1: [], 2: [b"news"]}


def test_a_minimum_of_bytes_is_waited_for(serving: BrokerProcess, connection: BrokerConnection, topic: str) -> None:
    size = fill(connection, topic, 1)
    connection.ask(fetch_request(topic, {0: 1}, max_wait_ms=LONG_MS, min_bytes=3 * size), 12)
    with connect(serving) as other:
        for _ in range(3):
            produce(other, topic, {0: batch_of(b"0.0 " + bytes(1_000))})
    answer = connection.receive()
    assert isinstance(answer, FetchResponse)
    assert len(records_of(answer.responses[0].partitions[0])) == 3


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
@pytest.mark.parametrize("batches", [2.0, 2.5])
def test_more_than_the_answer_may_hold_is_not_waited_for(
    connection: BrokerConnection, topic: str, limit: str, batches: float
) -> None:
    most_bytes = int(fill(connection, topic, 4) * batches)
    limits = {limit: most_bytes, "min_bytes": most_bytes}
    assert len(records_of(fetch(connection, topic, {0: 0}, max_wait_ms=LONG_MS, **limits)[0])) == 2


def test_many_waiting_fetches_are_all_woken(serving: BrokerProcess, topic: str) -> None:
    waiting = [connect(serving) for _ in range(50)]
    fill(waiting[0], topic, 1)
    for connection in waiting:
        connection.ask(fetch_request(topic, {0: 1}, max_wait_ms=LONG_MS, min_bytes=1), 12)
    with connect(serving) as other:
        produce(other, topic, {0: batch_of(b"news")})
    for connection in waiting:
        answer = connection.receive()
        assert isinstance(answer, FetchResponse)
        assert values_of(answer.responses[0].partitions[0]) == [b"news"]
        connection.close()


def test_a_reader_at_the_end_misses_nothing_of_a_busy_partition(
    serving: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    metadata(connection, topic)
    expected = [b"%d" % number for number in range(500)]

    def write() -> None:
        with connect(serving) as other:
            for value in expected:
                produce(other, topic, {0: batch_of(value)})

    writer = threading.Thread(target=write)
    writer.start()
    found: list[bytes | None] = []
    while len(found) < len(expected):
        found += values_of(fetch(connection, topic, {0: len(found)}, max_wait_ms=LONG_MS, min_bytes=1)[0])
    writer.join()
    assert found == expected


def test_a_record_that_arrives_while_other_partitions_are_read_wakes_the_fetch(
    serving: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    """Reading the large one takes a while; what comes to the small one meanwhile must not be slept over."""
    create_topic(connection, topic, partitions=2)
    produce(connection, topic, {1: batch_of(bytes(1_000_000))})
    large = size_of(fetch(connection, topic, {1: 0})[1])
    with connect(serving) as other:
        for number in range(50):
            connection.ask(fetch_request(topic, {0: number, 1: 0}, max_wait_ms=LONG_MS, min_bytes=large + 1), 12)
            produce(other, topic, {0: batch_of(b"%d" % number)})
            answer = connection.receive()
            assert isinstance(answer, FetchResponse)
            assert values_of(answer.responses[0].partitions[0]) == [b"%d" % number]


def test_a_request_of_many_partitions_reads_no_more_than_it_may_return(
    serving: BrokerProcess, connection: BrokerConnection, topic: str
) -> None:
    """Little is wanted of each of them, and each would take a whole entry to be read."""
    create_topic(connection, topic)
    for _ in range(3):
        produce(connection, topic, {0: batch_of(bytes(1_000_000))})
    request = fetch_request(topic, {0: 0}, partition_max_bytes=1)
    request.topics[0].partitions *= 20_000
    with memory_grows_less_than(serving, 150 << 20):
        answer = connection.send_for(request, FetchResponse, 12)
    sizes = [size_of(data) for data in answer.responses[0].partitions]
    assert (len(sizes), sum(size > 0 for size in sizes)) == (20_000, 1)
