"""What happens to servers behind sentinels under load."""

from __future__ import annotations

from signal import Signals

from headrace.store.embedded.trial import TrialServer
from tests.broker_process import wait_until
from tests.conftest import StartBroker
from tests.faults.load import Load
from tests.sentinels import WatchedServers


class SentinelLoad(Load):
    """The load, and what is done to the servers."""

    def __init__(self, servers: WatchedServers, start_broker: StartBroker, seed: int, **settings: object) -> None:
        self.servers = servers
        settings = {"redis": servers.url, "node_lease_ms": 3_000, **settings}
        super().__init__([start_broker(node_id=node_id, **settings) for node_id in (1, 2)], seed)

    def lose_the_primary(self) -> TrialServer:
        dead = self.servers.kill_primary()
        self.goes_on()
        return dead

    def kill_the_primary(self) -> None:
        self.lose_the_primary().start()
        self._wait_in_step()

    def fail_over(self) -> None:
        self.servers.fail_over()
        self.goes_on()
        self._wait_in_step()

    def freeze_the_primary(self) -> None:
        """It is replaced, and comes back in the belief that it is the primary still."""
        old = self.servers.primary
        old.send_signal(Signals.SIGSTOP)
        wait_until(lambda: self.servers.primary is not old, "no failover", 60)
        self.goes_on()
        old.send_signal(Signals.SIGCONT)
        self.goes_on()
        self._wait_in_step()

    def lose_the_primary_and_a_node_beside_a_replica_that_is_behind(self) -> None:
        """Who has the records that were acknowledged last is the other replica alone, if topics wait for one."""
        behind = self.servers.freeze_a_replica()
        self.goes_on()
        node = self.random.choice(self.brokers)
        node.kill()
        dead = self.servers.kill_primary()
        behind.send_signal(Signals.SIGCONT)
        self.goes_on()
        dead.start()
        node.start()
        self._wait_in_step()
        self.goes_on()

    def lose_a_sentinel(self) -> None:
        sentinel = self.random.choice(self.servers.sentinels)
        sentinel.kill()
        self.kill_the_primary()
        sentinel.start()

    def _wait_in_step(self) -> None:
        wait_until(self.servers.are_replicas_in_step, "the replicas do not follow", 60)
