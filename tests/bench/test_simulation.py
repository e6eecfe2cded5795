"""The simulation of large clusters: its queues are right, and the page shows what it prints."""

from __future__ import annotations

import numpy as np
from bench.model import PAGE, REPORT, Cost, Load
from bench.simulation import Cluster, places_of, served, table


def test_the_page_on_scale_shows_what_the_simulation_prints() -> None:
    assert table(REPORT.read_text()) in PAGE.read_text()


def test_each_core_does_one_thing_after_the_other_in_the_order_of_arrival() -> None:
    arrived = np.array([0.0, 0.1, 0.2, 5.0, 0.0])
    where = np.array([0, 0, 0, 0, 1])
    assert served(arrived, where, 1.0).tolist() == [1.0, 2.0, 3.0, 6.0, 1.0]
    assert served(arrived[::-1], where[::-1], 1.0).tolist() == [1.0, 6.0, 3.0, 2.0, 1.0]


def test_the_busiest_core_has_as_much_to_do_as_its_partitions_bring() -> None:
    cluster = Cluster(Load("batches of 16 KB", 500, Cost(4.0, 2.0)), 4, 3, 40)
    places, calm = places_of(4, 3, 40), cluster.calm()
    most = [np.bincount(found).max() / 40 for found in (places.leaders, places.shards)]
    assert abs(calm.node / (2.0 * most[0]) - 1) < 0.02
    assert abs(calm.primary / (1.0 * most[1]) - 1) < 0.02


def test_what_waited_is_late_until_it_was_caught_up_with() -> None:
    """One server with half a core to spare: 3 s of waiting are made up for after 3 more, less the last tenth."""
    cluster = Cluster(Load("batches of 16 KB", 250, Cost(0.1, 2.0)), 2, 1, 8)
    assert 5.5 < cluster.late_after_a_primary_died() < 6.1
    assert Cluster(Load("batches of 16 KB", 600, Cost(0.1, 2.0)), 2, 1, 8).late_after_a_primary_died() > 18
