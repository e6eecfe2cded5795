"""Brokers behind sentinels, under load: primaries are killed and replaced, and nothing is lost, doubled or moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import Signals

import pytest

from headrace.store.embedded.trial import TrialServer
from tests.broker_process import wait_until
from tests.conftest import StartBroker
from tests.faults.load import Load
from tests.sentinels import WatchedServers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[WatchedServers]:
    watched = WatchedServers(tmp_path)
    try:
        yield watched.start()
    finally:
        watched.stop()


class SentinelLoad(Load):
    """The load, and what is done to the servers."""

    def __init__(self, servers: WatchedServers, start_broker: StartBroker, seed: int) -> None:
        self.servers = servers
        nodes = [start_broker(redis=servers.url, node_id=node_id, node_lease_ms=3_000) for node_id in (1, 2)]
        super().__init__(nodes, seed)

    def lose_the_primary(self) -> TrialServer:
        dead = self.servers.kill_primary()
        self.sender.goes_on()
        return dead

    def kill_the_primary(self) -> None:
        self.lose_the_primary().start()
        self._wait_in_step()

    def fail_over(self) -> None:
        self.servers.fail_over()
        self.sender.goes_on()
        self._wait_in_step()

    def freeze_the_primary(self) -> None:
        """It is replaced, and comes back in the belief that it is the primary still."""
        old = self.servers.primary
        old.send_signal(Signals.SIGSTOP)
        wait_until(lambda: self.servers.primary is not old, "no failover", 60)
        self.sender.goes_on()
        old.send_signal(Signals.SIGCONT)
        self.sender.goes_on()
        self._wait_in_step()

    def lose_a_sentinel(self) -> None:
        sentinel = self.random.choice(self.servers.sentinels)
        sentinel.kill()
        self.kill_the_primary()
        sentinel.start()

    def _wait_in_step(self) -> None:
        wait_until(self.servers.are_replicas_in_step, "the replicas do not follow", 60)


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
