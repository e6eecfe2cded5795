"""Groups that move to a node of which their last owner has not heard yet: what that one answers meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from headrace.client.connection import BrokerConnection
from tests.broker.members import (
    NONE,
    NOT_COORDINATOR,
    commit,
    committed_offset,
    describe,
    fetch_offsets,
)
from tests.broker.peers import connect, create_topic
from tests.broker_process import wait_until
from tests.conftest import StartBroker, StartRedis

LEASE_MS = 60_000
"""A node looks for others every 15 s."""
GROUPS = [f"group-{number}" for number in range(16)]


@pytest.fixture
def connections(
    start_broker: StartBroker, start_redis: StartRedis, topic: str
) -> Iterator[tuple[BrokerConnection, BrokerConnection]]:
    """To a node that made all groups, and to one that has joined since. The first does not hear of it."""
    server = start_redis("everysec")
    with redis.Redis(port=server.port) as client:
        client.execute_command("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all")
        url = server.url.replace("redis://", "redis://deaf:secret@")
        node = start_broker(redis=url, node_id=1, node_lease_ms=LEASE_MS)
        client.execute_command("ACL", "SETUSER", "deaf", "resetchannels")
    wait_until(lambda: "redis does not allow subscribing" in node.log, "the first node still listens")
    with connect(node) as first:
        create_topic(first, topic, 1)
        for group in GROUPS:
            assert commit(first, group, topic, {0: 5}) == {0: NONE}
        with connect(start_broker(redis=server.url, node_id=2, node_lease_ms=LEASE_MS)) as second:
            yield first, second


def test_no_committed_offset_is_older_than_what_another_node_acknowledged(
    connections: tuple[BrokerConnection, BrokerConnection], topic: str
) -> None:
    first, second = connections
    moved = [group for group in GROUPS if commit(second, group, topic, {0: 7})[0] == NONE]
    assert moved, "one of sixteen belongs to the second node, all but surely"
    for group in moved:
        assert fetch_offsets(first, group, {topic: [0]}) == (NOT_COORDINATOR, {})
        assert describe(first, group).error_code == NOT_COORDINATOR
        assert committed_offset(second, group, topic) == 7
    for group in set(GROUPS) - set(moved):
        assert committed_offset(first, group, topic) == 5
