"""A real Valkey cluster for tests, and what happens to one: failovers, slots that move, servers that come and go."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path

import hiredis

from headrace.store.embedded.ports import HOST
from headrace.store.embedded.trial import TrialCluster, TrialServer, node_id
from headrace.store.redis.topology import slot_number
from tests.broker_process import wait_until

_TIMEOUT_S = 60.0
_MIGRATE_TIMEOUT_MS = 10_000
_FAILOVER_S = 6.0
"""Servers give up one that was asked for after 5 s. To ask earlier would begin it anew."""


class ClusterOfServers(TrialCluster):
    """Three primaries with a replica each, unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        *,
        primaries: int = 3,
        replicas: int = 1,
        durability: str = "memory",
        options: dict[str, str] | None = None,
    ) -> None:
        super().__init__(folder, primaries=primaries, replicas=replicas, durability=durability)  # type: ignore[arg-type]
        self._options |= options or {}

    def owner_of(self, slot: int) -> TrialServer:
        """The primary that has a slot now, by the word of any server that works."""
        for server in self.servers:
            if server.is_running and b"cluster_state:ok" in server.ask("CLUSTER", "INFO"):
                for first, last, primary, *_ in server.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return self._at(primary[1])
        raise AssertionError(f"no server has slot {slot}")

    def owner_of_key(self, key: str) -> TrialServer:
        return self.owner_of(slot_number(key))

    def _at(self, port: int) -> TrialServer:
        return next(server for server in self.servers if server.port == port)

    def replica_of(self, primary: TrialServer) -> TrialServer:
        wanted = str(primary.port)
        return next(
            one
            for one in self.servers
            if one.is_running and one is not primary and one.info("replication").get("master_port") == wanted
        )

    def pair_of(self, slot: int) -> tuple[TrialServer, TrialServer]:
        """The primary that has a slot, and its replica; waits until all have heard of the last failover."""
        found: list[tuple[TrialServer, TrialServer]] = []

        def is_there() -> bool:
            with contextlib.suppress(StopIteration):
                primary = self.owner_of(slot)
                found.append((primary, self.replica_of(primary)))
            return bool(found)

        wait_until(is_there, f"the primary of slot {slot} has no replica", _TIMEOUT_S)
        return found[0]

    def wait_whole(self) -> None:
        """Returns once all slots are served and all replicas are in step."""
        wait_until(self.is_whole, "the cluster does not become whole", _TIMEOUT_S)

    def kill_primary(self, slot: int) -> TrialServer:
        """Kills the server that has a slot; returns once its replica took over."""
        primary, replica = self.pair_of(slot)
        primary.kill()
        wait_until(lambda: replica.info("replication")["role"] == "master", "no failover", _TIMEOUT_S)
        return primary

    def fail_over(self, slot: int) -> None:
        """Has the replica of a slot's server take over, in good order; asked for again if it begins and gives up."""
        _, replica = self.pair_of(slot)
        asked_at = -math.inf

        def took_over() -> bool:
            nonlocal asked_at
            if replica.info("replication")["role"] == "master":
                return True
            if time.monotonic() - asked_at > _FAILOVER_S:
                ask_for_failover(replica)
                asked_at = time.monotonic()
            return False

        wait_until(took_over, "no failover", _TIMEOUT_S)

    def slots_of(self, server: TrialServer) -> list[int]:
        rows = server.ask("CLUSTER", "SLOTS")
        return [slot for first, last, one, *_ in rows if one[1] == server.port for slot in range(first, last + 1)]

    def move(self, slots: list[int], target: TrialServer) -> None:
        """Moves slots to a server at once, each with all its keys (Valkey 9)."""
        for slot in slots:
            wait_until(
                lambda one=slot: self._moves_on(one, target),  # type: ignore[misc]
                f"slot {slot} does not move",
                _TIMEOUT_S,
            )

    def _moves_on(self, slot: int, target: TrialServer) -> bool:
        """Whether a slot has arrived; a migration that the servers gave up (they are busy, too) is begun again."""
        source = self.owner_of(slot)
        if source is target:
            return True
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in source.ask("CLUSTER", "GETSLOTMIGRATIONS")]
        ours = [row for row in rows if (row[b"operation"], row[b"slot_ranges"]) == (b"EXPORT", b"%d-%d" % (slot, slot))]
        if all(row[b"state"] in (b"success", b"failed", b"cancelled") for row in ours):
            try:
                source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", node_id(target))
            except hiredis.ReplyError as error:  # the map is being changed
                print(f"slot {slot} from {source} to {target}: {error}")
        return False

    def move_key_by_key(self, slot: int, target: TrialServer) -> None:
        """Moves a slot as servers before Valkey 9 do it: meanwhile its keys are at two servers, and clients get ASK."""
        source = self.owner_of(slot)
        if source is not target:
            self.begin_move(slot, target)
            self.end_move(slot, source, target)

    def begin_move(self, slot: int, target: TrialServer) -> None:
        """From now on keys that are not at the slot's server are asked for at the other one."""
        source = self.owner_of(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))

    @staticmethod
    def move_keys(slot: int, source: TrialServer, target: TrialServer, *, but: str = "") -> None:
        """Moves the keys of a slot one by one, except those that end as told."""
        for key in source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000):
            if not but or not key.decode().endswith(but):
                source.ask("MIGRATE", HOST, target.port, key, 0, _MIGRATE_TIMEOUT_MS)

    def end_move(self, slot: int, source: TrialServer, target: TrialServer) -> None:
        """Moves the keys that are left; the slot is the other server's then."""
        while source.ask("CLUSTER", "COUNTKEYSINSLOT", slot):
            self.move_keys(slot, source, target)
        for server in (target, source):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))
        self._wait_moved(slot, target)

    def _wait_moved(self, slot: int, target: TrialServer) -> None:
        wait_until(lambda: self.owner_of(slot) is target, f"slot {slot} does not move", _TIMEOUT_S)

    def add_shard(self) -> tuple[TrialServer, TrialServer]:
        """One more primary, without slots, and its replica: it gives itself to another one when the slots leave."""
        primary, replica = self.add_server(), self.add_server()
        self.introduce(self.servers[0], primary, replica)
        replica.ask("CLUSTER", "REPLICATE", node_id(primary))
        self.wait_whole()
        return primary, replica

    def remove(self, server: TrialServer) -> None:
        """Takes a server without slots out of the cluster."""
        gone = node_id(server)
        server.stop()
        self.servers.remove(server)
        for other in self.servers:
            with contextlib.suppress(hiredis.ReplyError):
                other.ask("CLUSTER", "FORGET", gone)

    def cut_links(self, server: TrialServer) -> None:
        """Ends all connections of clients."""
        server.ask("CLIENT", "KILL", "TYPE", "normal")


@contextlib.contextmanager
def running(cluster: ClusterOfServers) -> Iterator[ClusterOfServers]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def ask_for_failover(replica: TrialServer, *how: str) -> None:
    """Unless it is the primary by now."""
    try:
        replica.ask("CLUSTER", "FAILOVER", *how)
    except hiredis.ReplyError:
        if replica.info("replication")["role"] != "master":
            raise
