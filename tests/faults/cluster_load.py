"""Brokers on a real cluster, under load, through all that happens to its servers: nothing is lost, doubled or moved.

The load is an idempotent producer and two groups in both formats (`load.py`). What an asynchronous replica lacks when
it takes over, the brokers put back from their caches; what they cannot put back they report, offset by offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import Signals

import pytest

from headrace.store.embedded.trial import TrialServer
from headrace.store.keys import ClusterKeys
from headrace.store.redis.topology import slot_number
from tests.broker_process import BrokerProcess, wait_until
from tests.clusters import ClusterOfServers, running
from tests.conftest import StartBroker
from tests.faults.load import PLACES, Load
from tests.faults.witnesses import Place

LEASES = slot_number(ClusterKeys().nodes)
LEASE_MS = 3_000


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[ClusterOfServers]:
    with running(ClusterOfServers(tmp_path / "servers")) as cluster:
        yield cluster


def start_nodes(start_broker: StartBroker, servers: ClusterOfServers, count: int) -> list[BrokerProcess]:
    return [start_broker(redis=servers.url, node_id=1 + at, node_lease_ms=LEASE_MS) for at in range(count)]


class ClusterLoad(Load):
    """The load, and what is done to the servers."""

    def __init__(self, servers: ClusterOfServers, brokers: list[BrokerProcess], seed: int, pause_s: float) -> None:
        self.servers = servers
        super().__init__(brokers, seed, pause_s)

    def any_slot(self) -> int:
        return self.random.randrange(16384)

    # -- servers ------------------------------------------------------------------------------------------------

    def kill_a_primary(self, slot: int | None = None) -> None:
        dead = self.servers.kill_primary(self.any_slot() if slot is None else slot)
        self.sender.goes_on()
        dead.start()
        self.servers.wait_whole()

    def kill_the_primary_of_the_leases(self) -> None:
        self.kill_a_primary(LEASES)

    def fail_over(self) -> None:
        self.servers.fail_over(self.any_slot())
        self.sender.goes_on()
        self.servers.wait_whole()

    def freeze_a_primary(self) -> None:
        """Cut off and alive: its connections stay, its replica takes over, and it comes back as a replica."""
        primary = self.servers.owner_of(self.any_slot())
        replica = self.servers.replica_of(primary)
        primary.send_signal(Signals.SIGSTOP)
        wait_until(lambda: replica.info("replication")["role"] == "master", "no fail-over", 60)
        self.sender.goes_on(5)
        primary.send_signal(Signals.SIGCONT)
        self.servers.wait_whole()
        self.sender.goes_on()

    def cut_links(self) -> None:
        self.servers.cut_links(self.random.choice(self.servers.primaries))
        self.sender.goes_on()

    # -- slots --------------------------------------------------------------------------------------------------

    def move_slots_there_and_back(self) -> None:
        used = sorted({self.slot_in_use(place) for place in PLACES} | {LEASES})
        for slots in (self.random.sample(used, 4), self.random.sample(used, 4)):
            for slot in slots:
                self.servers.move([slot], self._another(slot))
            self.sender.goes_on(5)

    def move_slots_key_by_key(self) -> None:
        for place in self.random.sample(PLACES, 2):
            slot = self.slot_in_use(place)
            self.servers.move_key_by_key(slot, self._another(slot))
        self.sender.goes_on(5)

    def add_and_remove_a_shard(self) -> None:
        new = self.servers.add_server()
        self.servers.introduce(self.servers.servers[0], new)
        slots = sorted({self.slot_in_use(place) for place in PLACES})[:3]
        owners = {slot: self.servers.owner_of(slot) for slot in slots}
        self.servers.move(slots, new)
        self.sender.goes_on()
        for slot, owner in owners.items():
            self.servers.move([slot], owner)
        self.servers.remove(new)
        self.sender.goes_on()

    def _another(self, slot: int) -> TrialServer:
        owner = self.servers.owner_of(slot)
        return self.random.choice([one for one in self.servers.primaries if one is not owner])

    def slot_in_use(self, place: Place) -> int:
        return slot_number(self._meta(place)[1])

    # -- nodes --------------------------------------------------------------------------------------------------

    def kill_a_node(self) -> None:
        node = self.random.choice(self.brokers)
        node.kill()
        self.sender.goes_on()
        node.start()
        self.sender.goes_on()

    def freeze_a_node(self) -> None:
        node = self.random.choice(self.brokers)
        node.send_signal(Signals.SIGSTOP)
        self.sender.goes_on()
        node.send_signal(Signals.SIGCONT)
        self.sender.goes_on()

    def kill_a_node_and_a_primary(self) -> None:
        node = self.random.choice(self.brokers)
        node.kill()
        dead = self.servers.kill_primary(self.any_slot())
        self.sender.goes_on()
        dead.start()
        node.start()
        self.servers.wait_whole()
        self.sender.goes_on()

    # -- what was reported --------------------------------------------------------------------------------------

    def _meta(self, place: Place) -> tuple[TrialServer, str]:
        """A partition's own account, as the servers have it."""
        topic, number = place
        for server in self.servers.primaries:
            if keys := server.ask("KEYS", f"*{{{topic}:{number}[:}}]*:meta"):
                return server, keys[0].decode()
        raise AssertionError(f"{place} is nowhere")

    def reported_gaps(self, place: Place) -> list[tuple[int, int]]:
        server, meta = self._meta(place)
        gaps = server.ask("HGET", meta, "gaps")
        return [(start, end) for start, end in json.loads(gaps)] if gaps else []


SHORT: list[Callable[[ClusterLoad], None]] = [
    ClusterLoad.fail_over,
    ClusterLoad.move_slots_there_and_back,
    ClusterLoad.cut_links,
    ClusterLoad.kill_the_primary_of_the_leases,
]

LONG: list[Callable[[ClusterLoad], None]] = [
    *10 * [ClusterLoad.kill_a_primary, ClusterLoad.fail_over],
    *4 * [ClusterLoad.move_slots_there_and_back, ClusterLoad.move_slots_key_by_key, ClusterLoad.cut_links],
    *2 * [ClusterLoad.add_and_remove_a_shard, ClusterLoad.freeze_a_primary, ClusterLoad.kill_the_primary_of_the_leases],
    *2 * [ClusterLoad.kill_a_node, ClusterLoad.freeze_a_node, ClusterLoad.kill_a_node_and_a_primary],
]


def test_nothing_is_lost_through_what_happens_to_a_cluster(
    servers: ClusterOfServers, start_broker: StartBroker
) -> None:
    ClusterLoad(servers, start_nodes(start_broker, servers, 2), seed=15, pause_s=0.01).run(SHORT)


@pytest.mark.faults
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_through_a_bad_day_of_a_cluster(
    servers: ClusterOfServers, start_broker: StartBroker, seed: int
) -> None:
    load = ClusterLoad(servers, start_nodes(start_broker, servers, 3), seed, pause_s=0.004)
    faults = LONG.copy()
    load.random.shuffle(faults)
    load.run(faults, load.reported_gaps)
