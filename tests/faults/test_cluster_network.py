"""Brokers on a real cluster whose network fails: between brokers and servers, and between the brokers.

Each server and each broker has an address of its own for the others, with a relay behind it. Servers talk to each other
past the relays, so the cluster sees no reason for a failover, and clients reach the brokers past them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.store.embedded.ports import HOST, free_ports
from headrace.store.embedded.trial import TrialServer
from headrace.store.keys import Keys
from tests.broker_process import BrokerProcess, wait_until
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.cluster_load import LEASE_MS, LEASES, ClusterLoad
from tests.faults.test_two_brokers import nodes_of
from tests.relays import Network, Relay, network

OF_SERVERS, OF_BROKERS = "127.0.0.2", "127.0.0.3"
NODES = 3


class CutOffLoad(ClusterLoad):
    """The load, and what is done to the network."""

    def __init__(self, servers: ClusterOfServers, made: Network, start_broker: StartBroker, seed: int) -> None:
        self._to_server = {one: made.relay((OF_SERVERS, one.port), (HOST, one.port)) for one in servers.servers}
        self._to_broker: list[Relay] = []
        self._client_ports: list[int] = []
        super().__init__(servers, [self._start(start_broker, servers, made, at) for at in range(NODES)], seed, 0.01)
        self._know_each_other()

    def _start(
        self, start_broker: StartBroker, servers: ClusterOfServers, made: Network, node_id: int
    ) -> BrokerProcess:
        port, client_port = free_ports(2)
        self._to_broker.append(made.relay((OF_BROKERS, port), (HOST, port)))
        self._client_ports.append(client_port)
        return start_broker(
            redis=servers.url.replace(HOST, OF_SERVERS),
            node_id=node_id,
            node_lease_ms=LEASE_MS,
            listen=[
                f"default=PLAINTEXT://{HOST}:{port},advertised={OF_BROKERS}:{port}",
                f"clients=PLAINTEXT://{HOST}:{client_port}",
            ],
        )

    def addresses_of(self, brokers: Sequence[BrokerProcess]) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._client_ports)

    def _know_each_other(self) -> None:
        everybody = set(range(NODES))
        wait_until(lambda: all(nodes_of(one) == everybody for one in self.brokers), "a node stays away", 30)

    def _silence(self, server: TrialServer) -> None:
        """For longer than a lease: those on other servers go on meanwhile, groups too."""
        others = self.places_beside(server)
        groups = [one for one in self.groups if self.servers.owner_of_key(Keys().group(one.name)) is not server]
        relay = self._to_server[server]
        relay.go_silent()
        try:
            self.sender.goes_on(400, others)
            for group in groups:
                group.goes_on(others)
        finally:
            relay.heal()
        self.sender.goes_on()

    def black_hole_a_server(self) -> None:
        self._silence(self.servers.owner_of(self.any_slot()))

    def black_hole_the_server_of_the_leases(self) -> None:
        self._silence(self.servers.owner_of(LEASES))
        self._know_each_other()

    def forget_connections_to_servers(self) -> None:
        """Those that are open go silent, and new ones work.

        Over once groups are owned again: while the leases' server is silent, nobody takes one that was just let go.
        """
        for relay in self._to_server.values():
            relay.lose_track()
        self._know_each_other()
        for group in self.groups:
            group.goes_on(self.places)
        self.sender.goes_on()

    def cut_nodes_from_each_other(self) -> None:
        """Silence: nobody is deposed by it."""
        for relay in self._to_broker:
            relay.go_silent()
        self.sender.goes_on(400)
        assert all(nodes_of(one) == set(range(NODES)) for one in self.brokers)
        for relay in self._to_broker:
            relay.heal()
        self.sender.goes_on()

    def refuse_nodes_to_each_other(self) -> None:
        """Each node is found dead by its watchers, and claims its lease again."""
        for relay in self._to_broker:
            relay.refuse()
        self.sender.goes_on(400)
        self._know_each_other()
        for relay in self._to_broker:
            relay.heal()
        self.sender.goes_on()


@contextmanager
def cut_off_load(tmp_path: Path, start_broker: StartBroker, seed: int) -> Iterator[CutOffLoad]:
    options = {"cluster-announce-client-ipv4": OF_SERVERS}
    with running(ClusterOfServers(tmp_path / "servers", options=options)) as servers, network() as made:
        yield CutOffLoad(servers, made, start_broker, seed)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_the_network_of_a_cluster_fails(tmp_path: Path, start_broker: StartBroker) -> None:
    faults = 3 * [
        CutOffLoad.black_hole_a_server,
        CutOffLoad.black_hole_the_server_of_the_leases,
        CutOffLoad.forget_connections_to_servers,
        CutOffLoad.cut_nodes_from_each_other,
        CutOffLoad.refuse_nodes_to_each_other,
    ]
    with cut_off_load(tmp_path, start_broker, seed=4) as load:
        load.run(load.shuffled(faults), load.reported_gaps)
