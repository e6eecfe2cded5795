"""CreatePartitions over TCP, in every version."""

from __future__ import annotations

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.broker.administrator import Administrator, new_topic, versions
from tests.broker.peers import batch_of, fetch, metadata, produce, values_of


def partitions_of(administrator: Administrator, topic: str) -> int:
    (found,) = metadata(administrator.connection, topic).topics
    return len(found.partitions)


@pytest.mark.parametrize("version", versions(37))
def test_partitions_are_added_and_usable(administrator: Administrator, topic: str, version: int) -> None:
    administrator.create(new_topic(topic, 2))
    produce(administrator.connection, topic, {1: batch_of(b"kept")})
    assert administrator.add_partitions(topic, 4, version, validate_only=True) == (0, None)
    assert partitions_of(administrator, topic) == 2
    assert administrator.add_partitions(topic, 4, version) == (0, None)
    assert partitions_of(administrator, topic) == 4
    assert produce(administrator.connection, topic, {3: batch_of(b"new")})[3].error_code == 0
    found = fetch(administrator.connection, topic, {1: 0, 3: 0})
    assert (values_of(found[1]), values_of(found[3])) == ([b"kept"], [b"new"])


def test_a_number_that_is_no_increase_is_refused_in_kafka_s_words(administrator: Administrator, topic: str) -> None:
    administrator.create(new_topic(topic, 3))
    assert administrator.add_partitions(topic, 3) == (
        ErrorCode.INVALID_PARTITIONS,
        "Topic already has 3 partition(s).",
    )
    assert administrator.add_partitions(topic, 2) == (
        ErrorCode.INVALID_PARTITIONS,
        f"The topic {topic} currently has 3 partition(s); 2 would not be an increase.",
    )
    assert administrator.add_partitions(topic, 1_001)[0] == ErrorCode.INVALID_PARTITIONS
    assert partitions_of(administrator, topic) == 3


def test_assignments_must_name_brokers_that_exist_for_each_new_partition(
    administrator: Administrator, topic: str
) -> None:
    administrator.create(topic)
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert administrator.add_partitions(topic, 3, assignments=[[0]]) == (
        refused,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    )
    assert administrator.add_partitions(topic, 2, assignments=[[9]])[0] == refused
    assert administrator.add_partitions(topic, 3, assignments=[[0], [0]]) == (0, None)


def test_an_unknown_or_repeated_topic_is_refused(administrator: Administrator, topic: str) -> None:
    assert administrator.add_partitions(topic, 2)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    administrator.create(topic)
    rows = [CreatePartitionsTopic(topic, 2, None), CreatePartitionsTopic(topic, 3, None)]
    answer = administrator.connection.send_for(CreatePartitionsRequest(rows), CreatePartitionsResponse, 3)
    (result,) = answer.results
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert partitions_of(administrator, topic) == 1
