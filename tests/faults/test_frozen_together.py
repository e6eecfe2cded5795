"""A node that is frozen together with the primary.

It resumes beside a server that still believes to be the primary and would give it its lease, while the other nodes have
theirs from the new primary and lead its partitions. And what clients sent it is on its way until they give up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from signal import Signals

import pytest

from headrace.store.keys import ClusterKeys
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.peers import PRODUCE_BY_NAME, IdempotentProducer, connect, create_topic, produce_request
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker
from tests.sentinels import WatchedServers

TOPIC, PARTITIONS = "orders", 6
LEASE_MS = 1_000
FROZEN, OTHER = 1, 2


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[WatchedServers]:
    watched = WatchedServers(tmp_path)
    try:
        yield watched.start()
    finally:
        watched.stop()


def test_a_node_that_was_frozen_with_the_primary_leads_only_with_a_lease_from_the_new_one(
    servers: WatchedServers, start_broker: StartBroker
) -> None:
    nodes = {one: start_broker(redis=servers.url, node_id=one) for one in (FROZEN, OTHER)}
    with connect(nodes[OTHER]) as connection:
        create_topic(connection, TOPIC, PARTITIONS)
    wait_until(lambda: 0 < len(led_by(nodes[FROZEN])) < PARTITIONS, "one node leads everything")
    old = servers.primary
    for process in (nodes[FROZEN], old):
        process.send_signal(Signals.SIGSTOP)
    wait_until(lambda: servers.primary is not old, "no failover", 60)
    wait_until(lambda: len(led_by(nodes[OTHER])) == PARTITIONS, "nobody takes over", 30)
    new, lease = servers.primary, ClusterKeys().node(FROZEN)
    assert not new.ask("EXISTS", lease)
    for process in (old, nodes[FROZEN]):
        process.send_signal(Signals.SIGCONT)
    leads_by_right: list[bool] = []

    def is_known_by_all() -> bool:
        is_given, role = bool(old.ask("EXISTS", lease)), old.info("replication")["role"]
        assert role == "slave" or not is_given, "the old primary gave it its lease"
        led = [led_by(nodes[one]) for one in (FROZEN, OTHER)]
        if led[0] and not any(leads_by_right):
            leads_by_right.append(bool(new.ask("EXISTS", lease)))
        is_shared = all(led) and led[0] | led[1] == set(range(PARTITIONS)) and not led[0] & led[1]
        return is_shared and role == "slave"

    wait_until(is_known_by_all, "the partitions are not shared again", 60)
    assert leads_by_right == [True], "it led before the new primary gave it its lease"


@pytest.mark.parametrize("form", ["log", "stream"])
def test_a_batch_on_its_way_to_a_frozen_node_is_not_left_out(
    servers: WatchedServers, start_broker: StartBroker, form: str
) -> None:
    nodes = {one: start_broker(redis=servers.url, node_id=one, node_lease_ms=LEASE_MS) for one in (1, 2)}
    with connect(nodes[1]) as connection:
        create_topic(connection, TOPIC, PARTITIONS, {"headrace.format": form})
    leader = next(node for node in nodes.values() if 0 in led_by(node))
    other = next(node for node in nodes.values() if node is not leader)
    old = servers.primary
    with connect(leader) as to_leader, connect(other) as to_other:
        producer = IdempotentProducer(to_leader, TOPIC)
        assert producer.send(0)[0] == ErrorCode.NONE
        for process in (leader, old):
            process.send_signal(Signals.SIGSTOP)
        to_leader.ask(produce_request(TOPIC, {0: producer.batch(1)}), PRODUCE_BY_NAME)
        wait_until(lambda: servers.primary is not old, "no failover", 60)
        wait_until(lambda: 0 in led_by(other), "nobody takes over", 30)
        producer.connection = to_other
        until_s = time.monotonic() + 4 * LEASE_MS / 1000
        while time.monotonic() < until_s:
            assert producer.send(2)[0] != ErrorCode.NONE, "the batch before it was left out"
        for process in (old, leader):
            process.send_signal(Signals.SIGCONT)
        to_leader.receive()
        for sequence in (1, 2):
            wait_until(partial(resent, producer, nodes.values(), sequence), "it cannot go on", 30)


def resent(producer: IdempotentProducer, nodes: Iterable[BrokerProcess], sequence: int) -> bool:
    """Whether one of the nodes has a batch."""
    for node in nodes:
        with connect(node) as producer.connection:
            if producer.send(sequence)[0] == ErrorCode.NONE:
                return True
    return False


def led_by(node: BrokerProcess) -> set[int]:
    """The partitions whose end a node tells."""
    wanted = [ListOffsetsPartition(number, timestamp=-1) for number in range(PARTITIONS)]
    with connect(node) as connection:
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, wanted)])
        answer = connection.send_for(request, ListOffsetsResponse, 5)
    (topic,) = answer.topics
    return {one.partition_index for one in topic.partitions if one.error_code == ErrorCode.NONE}
