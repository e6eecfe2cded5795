"""Brokers on a cluster that is reached over TLS alone, under load, while its servers and slots change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clusters import running
from tests.conftest import StartBroker
from tests.faults.cluster_load import ClusterLoad, start_nodes
from tests.tls_servers import TlsCluster, has_tls


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_nothing_is_lost_on_a_cluster_behind_tls(tmp_path: Path, start_broker: StartBroker) -> None:
    if not has_tls():
        pytest.skip("the server has no TLS: TEST_REDIS_SERVER names another one")
    faults = [
        ClusterLoad.fail_over,
        ClusterLoad.move_slots_key_by_key,
        ClusterLoad.cut_links,
        ClusterLoad.kill_the_primary_of_the_leases,
        ClusterLoad.kill_a_node,
    ]
    with running(TlsCluster(tmp_path / "servers")) as servers:
        load = ClusterLoad(servers, start_nodes(start_broker, servers, 2), seed=15, pause_s=0.01)
        load.run(faults, load.reported_gaps)
