"""Times of records: what a batch's header says of them is made true, and what is too far off is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.batch import read_header, stamp_max_timestamp
from headrace.wire.compression import CODECS, Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, encode_batch
from tests.broker.administrator import Administrator
from tests.broker.peers import connect, create_topic, fetch, metadata, produce, records_of
from tests.broker.test_list_offsets import MAX_TIMESTAMP, ask
from tests.broker_process import BrokerProcess

NOW = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
FORMATS = [
    pytest.param({}, id="log"),
    pytest.param({"headrace.format": "stream", "message.timestamp.type": "CreateTime"}, id="stream"),
]


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(broker) as found:
        yield found


def batch(times: Sequence[int], says: int, codec: Compression = "none", size: int = 1) -> memoryview:
    """A batch of records of these times whose header says that the newest is another one."""
    records = [Record(at, time_ms, None, b"x" * size) for at, time_ms in enumerate(times)]
    data = bytearray(encode_batch(records, compression=codec))
    stamp_max_timestamp(data, says)
    return memoryview(data)


# What Apache Kafka 4.3 answers for the same batches.
@pytest.mark.parametrize("configs", FORMATS)
@pytest.mark.parametrize(
    ("times", "says", "newest", "since_1970"),
    [
        pytest.param([-1, -1], 0, (0, -1), (-1, -1), id="none has a time, as librdkafka says it"),
        pytest.param([-1, -1], -1, (0, -1), (-1, -1), id="none has a time"),
        pytest.param([NOW - 5, NOW - 4], 0, (1, NOW - 4), (0, NOW - 5), id="left at 0"),
        pytest.param([NOW - 5, NOW - 4], -1, (1, NOW - 4), (0, NOW - 5), id="left at -1"),
        pytest.param([NOW - 5, NOW - 4], NOW - 9, (1, NOW - 4), (0, NOW - 5), id="below the base"),
        pytest.param([-1, NOW - 4, -1], 0, (1, NOW - 4), (1, NOW - 4), id="one has a time"),
        pytest.param([0, 0], 0, (0, 0), (0, 0), id="midnight of 1970"),
    ],
)
def test_the_newest_time_is_that_of_the_records(
    connection: BrokerConnection,
    topic: str,
    configs: dict[str, str],
    times: list[int],
    says: int,
    newest: tuple[int, int],
    since_1970: tuple[int, int],
) -> None:
    create_topic(connection, topic, configs=configs)
    answer = produce(connection, topic, {0: batch(times, says)})[0]
    assert answer.error_code == 0
    base = answer.base_offset
    data = fetch(connection, topic, {0: base})[0]
    assert isinstance(data.records, memoryview)
    assert read_header(data.records).max_timestamp == newest[1]
    assert [record.timestamp for record in records_of(data)] == times
    for asked, (at, time_ms) in ((MAX_TIMESTAMP, newest), (0, since_1970), (NOW + 1, (-1, -1))):
        found = ask(connection, topic, asked)
        assert (found.error_code, found.offset, found.timestamp) == (0, base + at if at >= 0 else -1, time_ms), asked


@pytest.mark.parametrize("codec", CODECS)
def test_large_and_compressed_batches_are_looked_into(
    connection: BrokerConnection, topic: str, codec: Compression
) -> None:
    metadata(connection, topic)
    times = list(range(NOW - 20_000, NOW))
    assert produce(connection, topic, {0: batch(times, 0, codec)})[0].error_code == 0
    found = ask(connection, topic, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (19_999, NOW - 1)
    assert ask(connection, topic, NOW - 5).offset == 19_995


def test_a_batch_that_unfolds_to_too_much_counts_as_one_without_times(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    assert produce(connection, topic, {0: batch([NOW], 0, "gzip", size=20 << 20)})[0].error_code == 0
    data = fetch(connection, topic, {0: 0})[0]
    assert isinstance(data.records, memoryview)
    assert read_header(data.records).max_timestamp == -1


def test_an_implausible_header_over_broken_records_is_refused(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    for codec in CODECS:
        broken = bytearray(batch([NOW], 0, codec))
        broken[61:] = b"\xff" * (len(broken) - 61)
        stamp_max_timestamp(broken, 0)
        assert produce(connection, topic, {0: bytes(broken)})[0].error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("configs", FORMATS)
@pytest.mark.parametrize(
    ("times", "says", "limits"),
    [
        pytest.param([NOW, NOW + 2 * HOUR_MS], NOW + 2 * HOUR_MS, {}, id="ahead by more than the default"),
        pytest.param([NOW, NOW + 2 * HOUR_MS], 0, {}, id="ahead, and not said"),
        pytest.param([NOW + HOUR_MS], NOW + HOUR_MS, {"after": "60000"}, id="ahead by more than the topic takes"),
        pytest.param([NOW - HOUR_MS], NOW - HOUR_MS, {"before": "60000"}, id="too old"),
        pytest.param([NOW, NOW - HOUR_MS], NOW, {"before": "3500000"}, id="too old behind the first record"),
        pytest.param([-5, -1], -1, {"before": "100000000000"}, id="before 1970"),
    ],
)
def test_times_that_are_too_far_off_are_refused(
    connection: BrokerConnection,
    topic: str,
    configs: dict[str, str],
    times: list[int],
    says: int,
    limits: dict[str, str],
) -> None:
    bounds = {f"message.timestamp.{side}.max.ms": limit for side, limit in limits.items()}
    create_topic(connection, topic, configs=configs | bounds)
    answer = produce(connection, topic, {0: batch(times, says)})[0]
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert (answer.error_message or "").startswith("One or more records have been rejected due to invalid timestamp")


def test_records_without_a_time_are_never_too_old(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic, configs={"message.timestamp.before.max.ms": "1000"})
    assert produce(connection, topic, {0: batch([-1, -1], 0)})[0].error_code == 0


def test_a_topic_that_takes_any_time_takes_the_far_future(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic, configs={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    assert produce(connection, topic, {0: batch([1 << 60], 1 << 60)})[0].error_code == 0
    assert ask(connection, topic, MAX_TIMESTAMP).timestamp == 1 << 60


@pytest.mark.parametrize("configs", FORMATS)
def test_the_newest_of_what_is_left_is_found_after_a_deletion(
    connection: BrokerConnection, topic: str, configs: dict[str, str]
) -> None:
    create_topic(connection, topic, configs=configs)
    bases = [
        produce(connection, topic, {0: batch([time_ms] * 2, time_ms, size=40_000)})[0].base_offset
        for time_ms in (NOW - 100, NOW - 1, NOW - 50, NOW - 20, NOW - 70)
    ]
    assert ask(connection, topic, MAX_TIMESTAMP).offset == bases[1]
    for start, expected in ((bases[1] + 1, bases[1] + 1), (bases[2], bases[3]), (bases[3] + 1, bases[3] + 1)):
        assert Administrator(connection).delete_records(topic, 0, start) == (0, start)
        assert ask(connection, topic, MAX_TIMESTAMP).offset == expected
    end = bases[4] + 2
    assert Administrator(connection).delete_records(topic, 0, end) == (0, end)
    assert ask(connection, topic, MAX_TIMESTAMP).offset == -1
