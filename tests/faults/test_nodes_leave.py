"""Nodes that leave in order under load: others take over at once, and no group rebalances."""

from __future__ import annotations

from signal import Signals

import pytest

from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker, StartRedis
from tests.faults.several_nodes import LONG_LEASE_MS, Nodes, under_load


def test_a_node_that_is_stopped_hands_over_without_a_lease_to_wait_for_and_no_group_rebalances(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    nodes = Nodes(start_broker, start_redis("everysec"), node_lease_ms=LONG_LEASE_MS)
    with under_load(nodes) as load:
        assignments = load.group.assignments
        for broker in nodes.all:
            load.settles()
            assert broker.stop() == 0
            load.settles()
            broker.start()
            nodes.know_each_other()
            load.settles()
        assert load.group.assignments == assignments


@pytest.mark.faults
def test_nodes_that_are_all_stopped_at_once_start_again_as_they_were(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    nodes = Nodes(start_broker, start_redis("everysec"), node_lease_ms=LONG_LEASE_MS)
    with under_load(nodes) as load:
        assignments = load.group.assignments
        for broker in nodes.all:
            broker.send_signal(Signals.SIGTERM)
        assert [broker.wait() for broker in nodes.all] == [0, 0, 0]
        for broker in nodes.all:
            BrokerProcess.start(broker)
        nodes.know_each_other()
        load.settles()
        assert load.group.assignments == assignments
