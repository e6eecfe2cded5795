"""A node that was frozen together with the primary: it resumes beside a server that still believes to be the primary.

That server would give it its lease, while the other nodes have theirs from the new primary and lead its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from signal import Signals

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.peers import connect, create_topic
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.sentinels import WatchedServers

TOPIC, PARTITIONS = "orders", 6
FROZEN, OTHER = 1, 2


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[WatchedServers]:
    watched = WatchedServers(tmp_path)
    try:
        yield watched.start()
    finally:
        watched.stop()


def test_a_node_that_was_frozen_with_the_primary_does_not_lead_beside_the_others(
    servers: WatchedServers, start_broker: StartBroker
) -> None:
    nodes = {one: start_broker(redis=servers.url, node_id=one, node_lease_ms=1_000) for one in (FROZEN, OTHER)}
    with connect(nodes[OTHER]) as connection:
        create_topic(connection, TOPIC, PARTITIONS)
    wait_until(lambda: 0 < len(led_by(nodes[FROZEN])) < PARTITIONS, "one node leads everything")
    old = servers.primary
    for process in (nodes[FROZEN], old):
        process.send_signal(Signals.SIGSTOP)
    wait_until(lambda: servers.primary is not old, "no failover", 60)
    wait_until(lambda: len(led_by(nodes[OTHER])) == PARTITIONS, "nobody takes over", 30)
    for process in (old, nodes[FROZEN]):
        process.send_signal(Signals.SIGCONT)
    seen: list[tuple[int, set[int]]] = []

    def is_known_by_all() -> bool:
        seen.extend((one, led_by(nodes[one])) for one in (FROZEN, OTHER))
        return old.info("replication")["role"] == "slave" and len(seen[-2][1]) + len(seen[-1][1]) == PARTITIONS

    wait_until(is_known_by_all, "the old primary does not follow", 60)
    for partition in range(PARTITIONS):
        leaders = [node for node, _ in groupby(node for node, led in seen if partition in led)]
        assert leaders in ([OTHER], [OTHER, FROZEN]), f"partition {partition} had two leaders at a time"


def led_by(node: BrokerProcess) -> set[int]:
    """The partitions whose end a node tells."""
    wanted = [ListOffsetsPartition(number, timestamp=-1) for number in range(PARTITIONS)]
    with connect(node) as connection:
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, wanted)])
        answer = connection.send_for(request, ListOffsetsResponse, 5)
    (topic,) = answer.topics
    return {one.partition_index for one in topic.partitions if one.error_code == ErrorCode.NONE}
