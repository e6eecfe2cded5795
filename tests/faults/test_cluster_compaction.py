"""Compacted topics in both formats on a cluster whose primaries fail, or whose partitions change their node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.cluster_load import LoadThatWaits, start_nodes
from tests.faults.compacted import COMPACTING, Compacted


class CompactedLoad(Compacted, LoadThatWaits): ...


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_last_value_of_each_key_stays_on_a_cluster_whose_primaries_fail(
    tmp_path: Path, start_broker: StartBroker, seed: int
) -> None:
    faults = [
        *3 * [CompactedLoad.kill_a_primary, CompactedLoad.fail_over],
        CompactedLoad.move_slots_there_and_back,
        CompactedLoad.freeze_a_primary,
        *2 * [CompactedLoad.kill_a_node],
        CompactedLoad.kill_a_node_and_a_primary,
    ]
    with running(ClusterOfServers(tmp_path / "servers", durability="always")) as servers:
        nodes = start_nodes(start_broker, servers, 3, min_insync_replicas=2, **COMPACTING)
        load = CompactedLoad(servers, nodes, seed, pause_s=0.01)
        load.run(load.shuffled(faults))
