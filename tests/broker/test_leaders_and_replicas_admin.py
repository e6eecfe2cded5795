"""ElectLeaders, reassignments and log dirs: nothing is to be elected or moved, and the answers say so."""

from __future__ import annotations

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.broker.administrator import Administrator, new_topic, versions

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
PREFERRED, UNCLEAN = 0, 1


@pytest.mark.parametrize("version", versions(43))
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_there_is_never_a_leader_to_elect(administrator: Administrator, topic: str, version: int, kind: int) -> None:
    administrator.create(new_topic(topic, 2))
    asked = [TopicPartitions(topic, [0, 1, 7]), TopicPartitions(f"{topic}-unknown", [0])]
    request = ElectLeadersRequest(kind if version else PREFERRED, asked)
    answer = administrator.connection.send_for(request, ElectLeadersResponse, version)
    rows = {
        (row.topic, partition.partition_id): (partition.error_code, partition.error_message)
        for row in answer.replica_election_results
        for partition in row.partition_result
    }
    not_needed = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    assert answer.error_code == 0
    assert rows == {
        (topic, 0): not_needed,
        (topic, 1): not_needed,
        (topic, 7): (UNKNOWN, f"No such partition as {topic}-7"),
        (f"{topic}-unknown", 0): (UNKNOWN, f"No such topic as {topic}-unknown"),
    }


def test_an_election_of_all_partitions_changes_none(administrator: Administrator, topic: str) -> None:
    administrator.create(topic)
    answer = administrator.connection.send_for(ElectLeadersRequest(PREFERRED, None), ElectLeadersResponse)
    assert (answer.error_code, answer.replica_election_results) == (0, [])


def test_a_kind_of_election_that_does_not_exist_is_refused(administrator: Administrator) -> None:
    answer = administrator.connection.send_for(ElectLeadersRequest(9, None), ElectLeadersResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_no_reassignment_is_ever_under_way(administrator: Administrator, topic: str) -> None:
    administrator.create(topic)
    for topics in (None, [ListPartitionReassignmentsTopics(topic, [0, 9])]):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = administrator.connection.send_for(request, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


@pytest.mark.parametrize("version", versions(45))
def test_a_reassignment_is_refused_with_the_reason_unless_it_changes_nothing(
    administrator: Administrator, topic: str, version: int
) -> None:
    administrator.create(new_topic(topic, 3))
    wanted = {0: [0], 1: [0, 1], 2: None, 9: [0]}
    asked = [ReassignableTopic(topic, [ReassignablePartition(*row) for row in wanted.items()])]
    asked.append(ReassignableTopic(f"{topic}-unknown", [ReassignablePartition(0, [0])]))
    request = AlterPartitionReassignmentsRequest(topics=asked)
    answer = administrator.connection.send_for(request, AlterPartitionReassignmentsResponse, version)
    known, unknown = answer.responses
    assert [(row.partition_index, row.error_code) for row in known.partitions] == [
        (0, 0),
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (9, UNKNOWN),
    ]
    assert "their records are in the store" in (known.partitions[1].error_message or "")
    assert [row.error_code for row in unknown.partitions] == [UNKNOWN]


@pytest.mark.parametrize("version", versions(34))
def test_the_store_is_the_only_log_dir(administrator: Administrator, topic: str, version: int) -> None:
    administrator.create(topic)
    dirs = administrator.connection.send_for(DescribeLogDirsRequest(None), DescribeLogDirsResponse)
    (store,) = [found.log_dir for found in dirs.results]
    for path, codes in ((store, [0, UNKNOWN]), ("/elsewhere", [ErrorCode.LOG_DIR_NOT_FOUND] * 2)):
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [0, 9])])])
        answer = administrator.connection.send_for(request, AlterReplicaLogDirsResponse, version)
        (result,) = answer.results
        assert [row.error_code for row in result.partitions] == codes
