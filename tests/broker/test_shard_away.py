"""While one server of a cluster is away, answers about many things have those that are there, and a retriable error."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headrace.client import Admin, Cluster, Groups, Transactions
from headrace.client.admin import GROUP
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.wire.special_times import LATEST
from tests.shard_away import GROUPS_KEY, LOGS, NAMES, PARTITIONS, RECORDS, STREAMS, TIERED, ShardAway, shard_away

pytestmark = pytest.mark.xdist_group("answers while a shard is away")


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardAway]:
    folder = tmp_path_factory.mktemp("away")
    (folder / "lake").mkdir()
    with shard_away(folder, GROUPS_KEY, lake=folder / "lake") as found:
        yield found


@pytest.fixture
def cluster(away: ShardAway) -> Iterator[Cluster]:
    with away.connect() as found, found.impatient(0.0):
        yield found


def test_groups_are_listed_though_the_server_with_their_names_is_away(away: ShardAway, cluster: Cluster) -> None:
    listed, missing = Groups(cluster).known_groups()
    assert {one.group_id for one in listed} >= set(NAMES) - set(away.groups)
    assert [error.code for error in missing.values()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_transactional_ids_on_other_servers_are_listed(away: ShardAway, cluster: Cluster) -> None:
    listed, missing = Transactions(cluster).known()
    assert {one.transactional_id for one in listed} == set(NAMES) - set(away.transactions)
    assert [error.code for error in missing.values()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_group_that_cannot_be_described_has_the_reason(away: ShardAway, cluster: Cluster) -> None:
    answer = cluster.any_node().send_for(DescribeGroupsRequest(NAMES), DescribeGroupsResponse)
    for group in answer.groups:
        is_away = group.group_id in away.groups
        retried = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        assert group.error_code in retried if is_away else group.error_code == 0
        assert bool(group.error_message) == is_away


def test_sizes_of_partitions_on_other_servers_are_told(away: ShardAway, cluster: Cluster) -> None:
    answer = cluster.any_node().send_for(DescribeLogDirsRequest(None), DescribeLogDirsResponse)
    [result] = answer.results
    assert result.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
    sizes = {topic.name: {p.partition_index for p in topic.partitions} for topic in result.topics}
    assert sizes.keys() == {LOGS, STREAMS, TIERED}
    assert sizes[LOGS] == set(away.there(away.logs))
    assert sizes[STREAMS] == set(away.there(away.streams))


def test_facts_about_streams_on_other_servers_are_told(away: ShardAway, cluster: Cluster) -> None:
    [told] = Admin(cluster).describe_configs(STREAMS, keys=["headrace.stream"])
    assert [one["partition"] for one in json.loads(told.value or "")] == away.there(away.streams)


def test_what_leaders_on_other_servers_noted_about_tiering_is_told(away: ShardAway, cluster: Cluster) -> None:
    [told] = Admin(cluster).describe_configs(TIERED, keys=["headrace.tiering"])
    there = {one["partition"] for one in json.loads(told.value or "")}
    places = [(TIERED, partition) for partition in range(PARTITIONS)]
    known, missing = Admin(cluster).known_offsets(dict.fromkeys(places, LATEST))
    assert there == {partition for _, partition in known}
    assert missing


def test_records_behind_are_counted_where_they_can_be(away: ShardAway, cluster: Cluster) -> None:
    name = next(name for name in NAMES if name not in away.groups)
    [told] = Admin(cluster).describe_configs(name, GROUP, ["headrace.group.records"])
    behind = {int(partition): count for partition, count in json.loads(told.value or "").items()}
    assert {p for p, count in behind.items() if count is None} == set(away.streams)
    assert {count for count in behind.values() if count is not None} == {RECORDS}
