"""Apache Kafka's own clients on a cluster whose primaries and nodes fail: nothing is lost, doubled or moved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.kafka import why_not

from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.cluster_load import LoadThatWaits, start_nodes
from tests.faults.java_clients import JavaClients
from tests.faults.witnesses import Receiving, Sending


class JavaLoad(LoadThatWaits):
    def start_clients(self, pause_s: float) -> tuple[Sending, Sequence[Receiving]]:
        clients = JavaClients(self.addresses, self.places, pause_s)
        return clients.sender, [clients.group]


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_nothing_is_lost_for_java_clients_on_a_cluster_whose_primaries_and_nodes_fail(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    if missing := why_not():
        pytest.skip(f"Apache Kafka's clients are not there: {missing}")
    faults = [
        *3 * [JavaLoad.kill_a_primary],
        *2 * [JavaLoad.fail_over, JavaLoad.kill_a_node],
        JavaLoad.move_slots_there_and_back,
        JavaLoad.freeze_a_node,
        JavaLoad.kill_a_node_and_a_primary,
        JavaLoad.restart_all_nodes_in_turn,
    ]
    with running(ClusterOfServers(tmp_path / "servers", durability="always")) as servers:
        load = JavaLoad(servers, start_nodes(start_broker, servers, 3, min_insync_replicas=2), seed=1, pause_s=0.01)
        load.run(load.shuffled(faults))
