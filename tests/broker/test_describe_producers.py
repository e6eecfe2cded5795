"""DescribeProducers: what a partition's leader knows of its idempotent producers."""

from __future__ import annotations

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.broker.administrator import Administrator, new_topic
from tests.broker.peers import IdempotentProducer, batch_of, connect, produce
from tests.conftest import StartBroker


def describe(administrator: Administrator, topic: str, *numbers: int) -> dict[int, PartitionResponse]:
    request = DescribeProducersRequest([TopicRequest(topic, list(numbers))])
    (found,) = administrator.connection.send_for(request, DescribeProducersResponse).topics
    assert [row.partition_index for row in found.partitions] == list(dict.fromkeys(numbers))
    return {row.partition_index: row for row in found.partitions}


@pytest.mark.parametrize("log_format", ["log", "stream"])
def test_the_producers_of_a_partition_are_shown_also_after_a_restart(
    start_broker: StartBroker, topic: str, log_format: str
) -> None:
    broker = start_broker()
    with connect(broker) as connection:
        administrator = Administrator(connection)
        administrator.create(new_topic(topic, 2, configs={"headrace.format": log_format}))
        produce(connection, topic, {0: batch_of(b"of nobody")})
        producers = [IdempotentProducer(connection, topic) for _ in range(2)]
        for producer in producers:
            assert producer.send(0, 3)[0] == producer.send(3, 2)[0] == 0
        before = describe(administrator, topic, 0, 1)
    expected = {(producer.id, 0, 4, -1, -1) for producer in producers}
    broker.stop()
    broker.start()
    with connect(broker) as connection:
        after = describe(Administrator(connection), topic, 0, 1)
    for seen in (before, after):
        rows = seen[0].active_producers
        assert {
            (
                row.producer_id,
                row.producer_epoch,
                row.last_sequence,
                row.coordinator_epoch,
                row.current_txn_start_offset,
            )
            for row in rows
        } == expected
        assert all(row.last_timestamp > 0 for row in rows)
        assert (seen[0].error_code, seen[1].error_code, seen[1].active_producers) == (0, 0, [])


def test_what_does_not_exist_says_so_and_a_partition_is_described_once(
    administrator: Administrator, topic: str
) -> None:
    administrator.create(topic)
    found = describe(administrator, topic, 0, 7, 0, 0)
    assert (found[0].error_code, found[0].error_message) == (0, None)
    assert found[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = describe(administrator, f"{topic}-unknown", 0)
    assert unknown[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
