"""Transactions on a cluster whose primaries fail: nothing is lost, doubled or torn, and nothing aborted is seen.

Copiers and their readers (`copying.py`) beside the usual load. Each transaction touches the slots of its id, of a
group and of four partitions, so that each primary that fails leaves some of them in the middle.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.keys import Keys
from headrace.store.redis.topology import slot_number
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.cluster_load import LoadThatWaits, start_nodes
from tests.faults.copiers import GROUP, OUTPUT
from tests.faults.copying import EAGER, CopyingBeside


class TransactionLoad(CopyingBeside, LoadThatWaits):
    def kill_the_primary_of_a_transactional_id(self) -> None:
        self.kill_a_primary(slot_number(Keys().transaction(self.random.choice(self.copying.copiers).name)))

    def kill_the_primary_of_the_group(self) -> None:
        self.kill_a_primary(slot_number(Keys().group_offsets(GROUP)))

    def kill_the_primary_of_an_output(self) -> None:
        self.kill_a_primary(self.slot_in_use((OUTPUT, self.random.randrange(3))))


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_are_exact_on_a_cluster_whose_primaries_fail(
    tmp_path: Path, start_broker: StartBroker, seed: int
) -> None:
    faults = [
        TransactionLoad.kill_the_primary_of_a_transactional_id,
        TransactionLoad.kill_the_primary_of_the_group,
        *2 * [TransactionLoad.kill_the_primary_of_an_output, TransactionLoad.fail_over],
        TransactionLoad.move_slots_there_and_back,
        TransactionLoad.freeze_a_primary,
        TransactionLoad.kill_a_node_and_a_primary,
    ]
    with running(ClusterOfServers(tmp_path / "servers", durability="always")) as servers:
        nodes = start_nodes(start_broker, servers, 3, min_insync_replicas=2, **EAGER)
        load = TransactionLoad(servers, nodes, seed, pause_s=0.05)
        load.run(load.shuffled(faults))
