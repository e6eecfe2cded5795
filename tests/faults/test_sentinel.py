"""Brokers behind sentinels, under load: primaries are killed and replaced, and nothing is lost, doubled or moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.faults.sentinel_load import SentinelLoad
from tests.sentinels import WatchedServers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[WatchedServers]:
    watched = WatchedServers(tmp_path)
    try:
        yield watched.start()
    finally:
        watched.stop()


def test_nothing_is_lost_when_sentinels_replace_the_primary(servers: WatchedServers, start_broker: StartBroker) -> None:
    SentinelLoad(servers, start_broker, seed=15).run([SentinelLoad.lose_the_primary])


@pytest.mark.faults
@pytest.mark.timeout(1_200)
def test_nothing_is_lost_when_sentinels_replace_the_primary_again_and_again(
    servers: WatchedServers, start_broker: StartBroker
) -> None:
    faults = [
        *9 * [SentinelLoad.kill_the_primary],
        *3 * [SentinelLoad.fail_over],
        *2 * [SentinelLoad.freeze_the_primary],
        SentinelLoad.lose_a_sentinel,
    ]
    load = SentinelLoad(servers, start_broker, seed=3)
    load.run(load.shuffled(faults))


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_nothing_is_lost_with_the_primary_and_a_node_where_topics_wait_for_replicas(
    servers: WatchedServers, start_broker: StartBroker
) -> None:
    faults = 3 * [SentinelLoad.lose_the_primary_and_a_node_beside_a_replica_that_is_behind]
    SentinelLoad(servers, start_broker, seed=7, min_insync_replicas=2).run([*faults, SentinelLoad.freeze_the_primary])
