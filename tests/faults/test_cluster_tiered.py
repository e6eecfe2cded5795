"""A tiered topic on a cluster whose primaries fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.cluster_load import LoadThatWaits, start_nodes
from tests.faults.tiering import Tiered
from tests.tiered import BROKER


class TieredLoad(Tiered, LoadThatWaits): ...


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_tiered_topic_loses_nothing_on_a_cluster_whose_primaries_fail(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    faults = [
        *2 * [TieredLoad.kill_a_primary, TieredLoad.fail_over],
        TieredLoad.move_slots_there_and_back,
        TieredLoad.kill_a_node,
        TieredLoad.kill_a_node_and_a_primary,
    ]
    lake = tmp_path / "lake"
    lake.mkdir()
    with running(ClusterOfServers(tmp_path / "servers", durability="always")) as servers:
        nodes = start_nodes(start_broker, servers, 3, min_insync_replicas=2, lake=lake, **BROKER)
        load = TieredLoad(lake, servers, nodes, seed=1, pause_s=0.02)
        load.run(load.shuffled(faults))
