"""Nodes that are killed or frozen under load, in both formats: others take over, and who comes back harms nobody."""

from __future__ import annotations

from signal import Signals

import pytest

from tests.broker_process import wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.several_nodes import LONG_LEASE_MS, Nodes, under_load
from tests.faults.test_two_brokers import nodes_of


def test_a_killed_node_is_replaced_without_a_lease_to_wait_for(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    nodes = Nodes(start_broker, start_redis("everysec"), node_lease_ms=LONG_LEASE_MS)
    with under_load(nodes) as load:
        for broker in nodes.all[:2]:
            broker.kill()
            nodes.know_each_other()
            load.settles()
            broker.start()
            nodes.know_each_other()
            load.settles()


@pytest.mark.faults
def test_a_node_that_was_frozen_past_its_lease_does_no_harm(start_broker: StartBroker, start_redis: StartRedis) -> None:
    """Its connections stay open, so nothing but the lease tells that it is away."""
    nodes = Nodes(start_broker, start_redis("everysec"), node_lease_ms=3_000)
    with under_load(nodes) as load:
        frozen = nodes.all[1]
        frozen.send_signal(Signals.SIGSTOP)
        wait_until(lambda: nodes_of(nodes.all[0]) == nodes_of(nodes.all[2]) == {0, 2}, "nobody takes over")
        load.sender.goes_on()
        frozen.send_signal(Signals.SIGCONT)
        nodes.know_each_other()
        load.settles()
