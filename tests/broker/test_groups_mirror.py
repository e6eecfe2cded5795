"""What Redis shows of groups: `XINFO GROUPS` of a partition's stream has `kafka:<group>`, moved with each commit.

In format `log` an entry holds whole batches; the tests produce one batch a request, so each makes one entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.connection import BrokerConnection
from tests.broker import members
from tests.broker.members import NONE, Member, commit, committed_offset
from tests.broker.peers import batch_of, connect, metadata, produce
from tests.broker_process import BrokerProcess, wait_until
from tests.redis_view import RedisView

RECORDS_A_BATCH = 10


@pytest.fixture
def connection(groups_broker: BrokerProcess) -> Iterator[BrokerConnection]:
    with connect(groups_broker) as found:
        yield found


@pytest.fixture
def redis(groups_broker: BrokerProcess) -> Iterator[RedisView]:
    with RedisView.of(groups_broker) as found:
        yield found


@pytest.fixture
def stream(connection: BrokerConnection, redis: RedisView, topic: str) -> str:
    """The stream of a topic's partition 0 with three entries: offsets 0 to 9, 10 to 19, 20 to 29."""
    metadata(connection, topic)
    for _ in range(3):
        produce(connection, topic, {0: batch_of(*[b"x"] * RECORDS_A_BATCH)})
    return redis.log_key(topic)


def mirror(redis: RedisView, stream: str, group: str) -> dict[str, Any] | None:
    return redis.groups_of(stream).get(f"kafka:{group}")


def wait_for_mirror(redis: RedisView, stream: str, group: str, position: str, lag: int) -> None:
    def is_there() -> bool:
        found = mirror(redis, stream, group)
        return found is not None and (found["last-delivered-id"], found["lag"]) == (position, lag)

    wait_until(is_there, f"not at {position} with lag {lag}: {mirror(redis, stream, group)}", timeout_s=10)


def test_it_comes_with_the_first_commit_and_not_before(
    groups_broker: BrokerProcess, connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    with Member(groups_broker, group) as member:
        member.form()
        assert redis.groups_of(stream) == {}
        member.commit(topic, {0: 10})
        wait_for_mirror(redis, stream, group, "0-1", lag=2)


@pytest.mark.parametrize(
    ("offset", "position", "lag"),
    [
        pytest.param(0, "0-0", 3, id="nothing read"),
        pytest.param(9, "0-0", 3, id="in the middle of the first entry"),
        pytest.param(10, "0-1", 2, id="all of the first entry"),
        pytest.param(11, "0-1", 2, id="in the middle of the second"),
        pytest.param(30, "20-1", 0, id="at the end"),
        pytest.param(1_000, "20-1", 0, id="behind the end"),
    ],
)
def test_its_position_is_the_last_entry_wholly_below_the_commit(
    connection: BrokerConnection,
    redis: RedisView,
    stream: str,
    topic: str,
    group: str,
    offset: int,
    position: str,
    lag: int,
) -> None:
    commit(connection, group, topic, {0: offset})
    wait_for_mirror(redis, stream, group, position, lag)


def test_it_moves_with_each_commit_back_as_well(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    for offset, position, lag in ((10, "0-1", 2), (30, "20-1", 0), (20, "10-1", 1)):
        commit(connection, group, topic, {0: offset})
        wait_for_mirror(redis, stream, group, position, lag)


def test_lag_counts_entries_that_come_later(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    commit(connection, group, topic, {0: 30})
    wait_for_mirror(redis, stream, group, "20-1", lag=0)
    produce(connection, topic, {0: batch_of(b"x")})
    wait_for_mirror(redis, stream, group, "20-1", lag=1)


def test_one_that_is_there_already_is_used(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    redis.call("XGROUP", "CREATE", stream, f"kafka:{group}", "$")
    redis.call("XGROUP", "CREATE", stream, group, "0")
    commit(connection, group, topic, {0: 10})
    wait_for_mirror(redis, stream, group, "0-1", lag=2)
    assert redis.groups_of(stream)[group]["last-delivered-id"] == "0-0", "a group of Redis code is left alone"


def test_losing_it_loses_nothing(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    commit(connection, group, topic, {0: 10})
    wait_for_mirror(redis, stream, group, "0-1", lag=2)
    redis.call("XGROUP", "DESTROY", stream, f"kafka:{group}")
    assert committed_offset(connection, group, topic) == 10
    commit(connection, group, topic, {0: 20})
    wait_for_mirror(redis, stream, group, "10-1", lag=1)


def test_it_is_destroyed_with_the_group(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    commit(connection, group, topic, {0: 10})
    commit(connection, f"{group}-2", topic, {0: 10})
    wait_for_mirror(redis, stream, f"{group}-2", "0-1", lag=2)
    assert members.delete_groups(connection, group) == [NONE]
    wait_until(lambda: redis.groups_of(stream).keys() == {f"kafka:{group}-2"}, "the mirror was kept")


def test_it_is_destroyed_with_the_offset(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    commit(connection, group, topic, {0: 10})
    wait_for_mirror(redis, stream, group, "0-1", lag=2)
    assert members.delete_offsets(connection, group, topic, 0) == (NONE, {0: NONE})
    wait_until(lambda: redis.groups_of(stream) == {}, "the mirror was kept")


def test_a_group_that_is_deleted_right_after_its_commit_leaves_no_mirror(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    for number in range(20):
        commit(connection, f"{group}-{number}", topic, {0: 10})
        assert members.delete_groups(connection, f"{group}-{number}") == [NONE]
    commit(connection, group, topic, {0: 30})
    wait_until(lambda: redis.groups_of(stream).keys() == {f"kafka:{group}"}, "mirrors of deleted groups are there")


def test_no_stream_comes_into_being_for_it(
    connection: BrokerConnection, redis: RedisView, stream: str, topic: str, group: str
) -> None:
    redis.call("UNLINK", stream)
    commit(connection, group, topic, {0: 10})
    commit(connection, group, topic, {1: 0})
    other = redis.log_key(topic, 1)
    wait_until(lambda: f"kafka:{group}" in redis.groups_of(other), "the other partition's mirror did not come")
    assert committed_offset(connection, group, topic) == 10
