"""ListOffsets and OffsetForLeaderEpoch over the raw protocol: where a partition starts, ends, and what was when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import BrokerConnection
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.records import Record, encode_batch
from tests.broker.administrator import Administrator
from tests.broker.peers import batch_of, connect, create_topic, metadata, produce
from tests.broker_process import BrokerProcess

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
TIMES = [1_000, 5_000, 3_000, 5_000, 2_000]
"""Not in order: the newest record is not the last one."""


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(broker) as found:
        yield found


@pytest.fixture
def filled(connection: BrokerConnection, topic: str) -> str:
    """A topic whose records have the times above, two batches of them."""
    metadata(connection, topic)
    for part in (TIMES[:3], TIMES[3:]):
        batch = encode_batch([Record(at, time, None, b"value") for at, time in enumerate(part)])
        assert produce(connection, topic, {0: batch})[0].error_code == 0
    return topic


def ask(
    connection: BrokerConnection, topic: str, timestamp: int, version: int = 11, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [wanted])])
    return connection.send_for(request, ListOffsetsResponse, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_start_end_and_times_in_every_version(connection: BrokerConnection, filled: str, version: int) -> None:
    for timestamp, offset in ((EARLIEST, 0), (LATEST, 5), (0, 0), (1_001, 1), (5_000, 1), (5_001, -1)):
        found = ask(connection, filled, timestamp, version)
        assert (found.error_code, found.offset) == (0, offset), timestamp


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (MAX_TIMESTAMP, 7, (1, 5_000)),
        (EARLIEST_LOCAL, 8, (0, -1)),
        (LATEST_TIERED, 9, (-1, -1)),
        (EARLIEST_PENDING_UPLOAD, 11, (-1, -1)),
    ],
)
def test_special_values_since_their_version(
    connection: BrokerConnection, filled: str, timestamp: int, since: int, expected: tuple[int, int]
) -> None:
    found = ask(connection, filled, timestamp, since)
    assert (found.error_code, found.offset, found.timestamp) == (0, *expected)
    assert ask(connection, filled, timestamp, since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_values_that_mean_nothing_are_refused(connection: BrokerConnection, filled: str) -> None:
    for timestamp in (-7, -(1 << 63)):
        assert ask(connection, filled, timestamp).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_partition_has_no_times(connection: BrokerConnection, topic: str) -> None:
    metadata(connection, topic)
    for timestamp, offset in ((EARLIEST, 0), (LATEST, 0), (MAX_TIMESTAMP, -1), (0, -1)):
        assert ask(connection, topic, timestamp).offset == offset


def test_deleted_records_are_found_no_more(connection: BrokerConnection, filled: str) -> None:
    assert Administrator(connection).delete_records(filled, 0, 2) == (0, 2)
    for timestamp, offset in ((EARLIEST, 2), (LATEST, 5), (0, 2), (4_000, 3), (MAX_TIMESTAMP, 3)):
        assert ask(connection, filled, timestamp).offset == offset, timestamp


def test_what_is_not_there_and_epochs_that_are_not_ours_are_refused(connection: BrokerConnection, filled: str) -> None:
    assert ask(connection, filled + "-nowhere", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(connection, filled, LATEST, epoch=0).error_code == 0
    assert ask(connection, filled, LATEST, epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_times_are_found_in_a_long_log(connection: BrokerConnection, topic: str) -> None:
    create_topic(connection, topic)
    for number in range(300):
        produce(connection, topic, {0: batch_of(bytes(2_000), bytes(2_000), timestamp=10_000 + number * 10)})
    for number in (0, 1, 150, 299):
        assert ask(connection, topic, 10_000 + number * 10).offset == 2 * number
        assert ask(connection, topic, 10_000 + number * 10 - 9).offset == 2 * number
    assert ask(connection, topic, MAX_TIMESTAMP).offset == 598


def test_the_end_of_an_epoch(connection: BrokerConnection, filled: str) -> None:
    for asked, current, expected in (
        (0, -1, (0, 0, 5)),
        (0, 0, (0, 0, 5)),
        (9, -1, (0, -1, -1)),
        (0, 9, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ):
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(filled, [wanted])])
        answer = connection.send_for(request, OffsetForLeaderEpochResponse, 4)
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == expected
