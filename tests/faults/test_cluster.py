"""Brokers on a real cluster, under load, through all that happens to its servers: nothing is lost, doubled or moved.

The load is an idempotent producer and two groups in both formats (`load.py`). What an asynchronous replica lacks when
it takes over, the brokers put back from their caches; what they cannot put back they report, offset by offset. Where
topics wait for a replica (min.insync.replicas=2) there is nothing to report.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.cluster_load import ClusterLoad, LoadThatWaits, start_nodes

Fault = Callable[[ClusterLoad], None]

SHORT: list[Fault] = [
    ClusterLoad.fail_over,
    ClusterLoad.move_slots_there_and_back,
    ClusterLoad.cut_links,
    ClusterLoad.kill_the_primary_of_the_leases,
]

LONG: list[Fault] = [
    *10 * [ClusterLoad.kill_a_primary, ClusterLoad.fail_over],
    *4 * [ClusterLoad.move_slots_there_and_back, ClusterLoad.move_slots_key_by_key, ClusterLoad.cut_links],
    *2 * [ClusterLoad.add_and_remove_a_shard, ClusterLoad.freeze_a_primary, ClusterLoad.kill_the_primary_of_the_leases],
    *2 * [ClusterLoad.kill_a_node, ClusterLoad.freeze_a_node, ClusterLoad.kill_a_node_and_a_primary],
    ClusterLoad.restart_all_nodes_in_turn,
]


def test_nothing_is_lost_through_what_happens_to_a_cluster(tmp_path: Path, start_broker: StartBroker) -> None:
    with running(ClusterOfServers(tmp_path / "servers")) as servers:
        ClusterLoad(servers, start_nodes(start_broker, servers, 2), seed=15, pause_s=0.01).run(SHORT)


@pytest.mark.faults
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_unreported_through_a_bad_day_of_a_cluster(
    tmp_path: Path, start_broker: StartBroker, seed: int
) -> None:
    with running(ClusterOfServers(tmp_path / "servers")) as servers:
        load = ClusterLoad(servers, start_nodes(start_broker, servers, 3), seed, pause_s=0.004)
        load.run(load.shuffled(LONG), load.reported_gaps)


@pytest.mark.faults
@pytest.mark.timeout(2_400)
def test_nothing_is_lost_through_a_bad_day_of_a_cluster_whose_topics_wait_for_replicas(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    with running(ClusterOfServers(tmp_path / "servers", durability="always")) as servers:
        nodes = start_nodes(start_broker, servers, 3, min_insync_replicas=2)
        load = LoadThatWaits(servers, nodes, seed=3, pause_s=0.004)
        load.run(load.shuffled([*LONG, *2 * [ClusterLoad.lose_the_shard_of_the_leases]]))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_nodes_that_restart_in_turn_on_a_cluster_lose_nothing_and_no_group_rebalances(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    with running(ClusterOfServers(tmp_path / "servers", durability="always")) as servers:
        nodes = start_nodes(start_broker, servers, 3, min_insync_replicas=2)
        load = LoadThatWaits(servers, nodes, seed=5, pause_s=0.01)
        load.run([ClusterLoad.restart_all_nodes_in_turn_without_a_rebalance])
