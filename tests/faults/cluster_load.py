"""What happens to a cluster under load: to its servers, to its slots, to the brokers."""

from __future__ import annotations

import json
from functools import partial
from itertools import product
from signal import Signals
from typing import Any

from headrace.store.embedded.trial import TrialServer
from headrace.store.keys import ClusterKeys
from headrace.store.redis.topology import slot_number
from tests.broker_process import BrokerProcess, wait_until
from tests.clusters import ClusterOfServers
from tests.conftest import StartBroker
from tests.faults.load import Load
from tests.faults.witnesses import Gaps, Place

LEASES = slot_number(ClusterKeys().nodes)
LEASE_MS = 3_000


def start_nodes(
    start_broker: StartBroker, servers: ClusterOfServers, count: int, **settings: object
) -> list[BrokerProcess]:
    ours = {"redis": servers.url, "node_lease_ms": LEASE_MS, **settings}
    return [start_broker(node_id=1 + at, **ours) for at in range(count)]


class ClusterLoad(Load):
    """The load, and what is done to the servers."""

    waits_for_replicas = False
    """Whether topics ask for a copy: then a server that took over accepts nothing before it has a replica itself."""

    def __init__(self, servers: ClusterOfServers, brokers: list[BrokerProcess], seed: int, pause_s: float) -> None:
        self.servers = servers
        super().__init__(brokers, seed, pause_s)

    def _goes_on_without_replica(self) -> None:
        if not self.waits_for_replicas:
            self.sender.goes_on(5)

    def _goes_on_whole(self) -> None:
        self.servers.wait_whole()
        self.goes_on()

    def any_slot(self) -> int:
        return self.random.randrange(16384)

    # -- servers ------------------------------------------------------------------------------------------------

    def kill_a_primary(self, slot: int | None = None) -> None:
        dead = self.servers.kill_primary(self.any_slot() if slot is None else slot)
        self._goes_on_without_replica()
        dead.start()
        self._goes_on_whole()

    def kill_the_primary_of_the_leases(self) -> None:
        self.kill_a_primary(LEASES)

    def lose_the_shard_of_the_leases(self) -> None:
        """Both copies, for longer than a lease: what is on other servers goes on. They have to keep files for this."""
        primary, replica = self.servers.pair_of(LEASES)
        others = self.places_beside(primary)
        replica.kill()
        primary.kill()
        self.sender.goes_on(1_000, others)
        primary.start()
        replica.start()
        self._goes_on_whole()

    def fail_over(self) -> None:
        self.servers.fail_over(self.any_slot())
        self._goes_on_whole()

    def freeze_a_primary(self) -> None:
        """Cut off and alive: its connections stay, its replica takes over, and it comes back as a replica."""
        primary, replica = self.servers.pair_of(self.any_slot())
        primary.send_signal(Signals.SIGSTOP)
        wait_until(lambda: replica.info("replication")["role"] == "master", "no failover", 60)
        self._goes_on_without_replica()
        primary.send_signal(Signals.SIGCONT)
        self._goes_on_whole()

    def cut_links(self) -> None:
        self.servers.cut_links(self.random.choice(self.servers.primaries))
        self.sender.goes_on()

    # -- slots --------------------------------------------------------------------------------------------------

    def move_slots_there_and_back(self) -> None:
        used = sorted({self.slot_in_use(place) for place in self.places} | {LEASES})
        for slots in (self.random.sample(used, 4), self.random.sample(used, 4)):
            for slot in slots:
                self.servers.move([slot], self._another(slot))
            self.sender.goes_on(5)

    def move_slots_key_by_key(self) -> None:
        for place in self.random.sample(self.places, 2):
            slot = self.slot_in_use(place)
            self.servers.move_key_by_key(slot, self._another(slot))
        self.sender.goes_on(5)

    def add_and_remove_a_shard(self) -> None:
        new, replica = self.servers.add_shard()
        slots = sorted({self.slot_in_use(place) for place in self.places})[:3]
        owners = {slot: self.servers.owner_of(slot) for slot in slots}
        self.servers.move(slots, new)
        self.sender.goes_on()
        for slot, owner in owners.items():
            self.servers.move([slot], owner)
        for server in (replica, new):
            self.servers.remove(server)
        self.sender.goes_on()

    def _another(self, slot: int) -> TrialServer:
        owner = self.servers.owner_of(slot)
        return self.random.choice([one for one in self.servers.primaries if one is not owner])

    def places_beside(self, server: TrialServer) -> list[Place]:
        """Those that are on other servers."""
        owners = {place: self.servers.owner_of(self.slot_in_use(place)) for place in self.places}
        return [place for place, owner in owners.items() if owner is not server]

    def slot_in_use(self, place: Place) -> int:
        return slot_number(self._key(place, "meta")[1])

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
        self._goes_on_without_replica()
        dead.start()
        node.start()
        self._goes_on_whole()

    def restart_all_nodes_in_turn(self) -> None:
        for node in self.brokers:
            assert node.stop() == 0
            self.sender.goes_on(5)
            node.start()
            self.sender.goes_on(5)

    def restart_all_nodes_in_turn_without_a_rebalance(self) -> None:
        for group in self.groups:
            group.has_one_owner_each(self.addresses, self.places)
        before = [group.assignments for group in self.groups]
        self.restart_all_nodes_in_turn()
        assert [group.assignments for group in self.groups] == before

    # -- what Redis shows ----------------------------------------------------------------------------------------

    def check(self, gaps_of: Gaps) -> None:
        super().check(gaps_of)
        for group, place in product(self.groups, self.places):
            try:
                follows = partial(self._is_mirrored_at_the_end, group.name, place)
                wait_until(follows, f"the mirror of {group.name} in {place} does not follow", 30)
            except AssertionError as error:
                error.add_note(f"{self._stream_and_mirror(group.name, place)}")
                raise

    def _is_mirrored_at_the_end(self, group: str, place: Place) -> bool:
        """For who looks at the group with Redis commands."""
        stream, mirror = self._stream_and_mirror(group, place)
        return (mirror.get(b"last-delivered-id"), mirror.get(b"lag")) == (stream[b"last-generated-id"], 0)

    def _stream_and_mirror(self, group: str, place: Place) -> tuple[dict[bytes, Any], dict[bytes, Any]]:
        server, log = self._key(place, "log", "stream")
        groups = {row[b"name"]: row for row in map(_facts, server.ask("XINFO", "GROUPS", log))}
        return _facts(server.ask("XINFO", "STREAM", log)), groups.get(b"kafka:%b" % group.encode(), {})

    # -- what was reported --------------------------------------------------------------------------------------

    def _key(self, place: Place, *endings: str) -> tuple[TrialServer, str]:
        """One of a partition's keys, and who has it."""
        topic, number = place
        for server in self.servers.primaries:
            for ending in endings:
                if keys := server.ask("KEYS", f"*{{{topic}:{number}[:}}]*:{ending}"):
                    return server, keys[0].decode()
        raise AssertionError(f"{place} is nowhere")

    def reported_gaps(self, place: Place) -> list[tuple[int, int]]:
        server, meta = self._key(place, "meta")
        fields = server.ask("HMGET", meta, "gaps", "replaced")
        return [(start, end) for field in fields if field for start, end in json.loads(field)]


class LoadThatWaits(ClusterLoad):
    waits_for_replicas = True


def _facts(row: list[Any]) -> dict[bytes, Any]:
    return dict(zip(row[::2], row[1::2], strict=True))
