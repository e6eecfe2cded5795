"""Brokers behind sentinels, under load: primaries are killed and replaced, and nothing is lost, doubled or moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.faults.compacted import COMPACTING, Compacted
from tests.faults.copying import EAGER, CopyingBeside
from tests.faults.sentinel_load import SentinelLoad
from tests.faults.tiering import Tiered
from tests.sentinels import WatchedServers
from tests.tiered import BROKER


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


class TransactionLoad(CopyingBeside, SentinelLoad): ...


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_transactions_are_exact_where_sentinels_replace_the_primary(
    servers: WatchedServers, start_broker: StartBroker
) -> None:
    faults = [
        *2 * [TransactionLoad.lose_the_primary_and_a_node_beside_a_replica_that_is_behind],
        *2 * [TransactionLoad.kill_the_primary],
        TransactionLoad.fail_over,
        TransactionLoad.freeze_the_primary,
    ]
    load = TransactionLoad(servers, start_broker, seed=11, min_insync_replicas=2, **EAGER)
    load.run(load.shuffled(faults))


class CompactedLoad(Compacted, SentinelLoad): ...


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_the_last_value_of_each_key_stays_where_sentinels_replace_the_primary(
    servers: WatchedServers, start_broker: StartBroker
) -> None:
    load = CompactedLoad(servers, start_broker, seed=1, min_insync_replicas=2, **COMPACTING)
    load.run([*3 * [CompactedLoad.kill_the_primary], CompactedLoad.fail_over])


class TieredLoad(Tiered, SentinelLoad): ...


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_tiered_topic_loses_nothing_where_sentinels_replace_the_primary(
    servers: WatchedServers, start_broker: StartBroker, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    load = TieredLoad(lake, servers, start_broker, seed=1, min_insync_replicas=2, lake=lake, **BROKER)
    load.run(3 * [TieredLoad.kill_the_primary])
