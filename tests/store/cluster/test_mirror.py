"""Mirrors of groups: moved by whoever stored a commit, and left where the last commit is."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from headrace.store.cluster.nodes.endpoints import node_at
from headrace.store.cluster.owned.groups import Committed, commit_field, pack_commit
from headrace.store.cluster.owned.mirror import Mirror, mirror_name
from headrace.store.options import StoreOptions
from headrace.store.partition.base import Partition
from headrace.store.redis.address import parse_address
from headrace.store.redis.errors import StoreAway
from headrace.store.store import Store
from tests.clusters import ClusterOfServers, running
from tests.store.conftest import OpenStore
from tests.store.produced import TIMEOUT_S, is_up, log_partition, produce, until
from tests.store.servers import Valkey

ORG = "default"
PLACE = ("orders", 0)


async def filled(store: Store) -> Partition:
    """A partition with an entry for each of five records."""
    partition = await log_partition(store, await store.default.catalogue.create("orders", 1, {}), 0)
    for _ in range(5):
        await produce(partition, b"x")
    return partition


def entry(valkey: Valkey, partition: Partition, at: int) -> bytes:
    identity: bytes = valkey.stream(partition.keys.log)[at][0]
    return identity


def delivered(valkey: Valkey, partition: Partition, group: str) -> bytes | None:
    """Where the mirror is."""
    with valkey.client() as client:
        found = {row["name"]: row["last-delivered-id"] for row in client.xinfo_groups(partition.keys.log)}
    position: bytes | None = found.get(mirror_name(group).encode())
    return position


def commit(valkey: Valkey, store: Store, group: str, partition: Partition, offset: int) -> None:
    """Stored, by whoever owns the group."""
    committed = pack_commit(Committed(offset, -1, "", 0, partition.topic.id))
    valkey.ask("HSET", store.default.keys.group_offsets(group), commit_field(PLACE), committed)


class HeldMove:
    """Holds up moves of mirrors in a partition, from the first on."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self._find = partition.mirror_position
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.error: StoreAway | None = None
        monkeypatch.setattr(partition, "mirror_position", self._held)

    async def _held(self, offset: int) -> tuple[str, int]:
        self.has_begun.set()
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        return await self._find(offset)


async def moved(store: Store, group: str, offset: int) -> None:
    """A node moves the mirror to what it stored, and is done."""
    mirror = Mirror(store)
    mirror.committed(ORG, group, PLACE, offset)
    await until(lambda: not mirror._is_moving)


async def test_a_node_that_does_not_own_the_group_any_more_leaves_the_mirror_at_the_last_commit(
    valkey: Valkey, open_store: OpenStore
) -> None:
    """It stored a commit, stood still, and goes on: the next owner has stored another and moved the mirror."""
    first, second = await open_store(), await open_store()
    await until(lambda: len(first.nodes.live) == len(second.nodes.live) == 2)
    group = next(name for name in map(str, range(100)) if second.nodes.owns_now(name.encode()))
    partition = await filled(first)
    await until(lambda: "orders" in second.default.catalogue.by_name)
    commit(valkey, first, group, partition, 5)
    await moved(second, group, 5)
    assert delivered(valkey, partition, group) == entry(valkey, partition, 4)
    await moved(first, group, 2)
    assert delivered(valkey, partition, group) == entry(valkey, partition, 4)


async def test_a_mirror_is_destroyed_without_waiting_for_those_of_other_groups(
    valkey: Valkey, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, mirror = await filled(store), Mirror(store)
    held = HeldMove(partition, monkeypatch)
    for group in ("busy", "idle"):
        mirror.committed(ORG, group, PLACE, 5)
    await held.has_begun.wait()
    async with asyncio.timeout(TIMEOUT_S):
        await mirror.destroy(ORG, "idle", [PLACE])
    held.may_go_on.set()
    await until(lambda: not mirror._is_moving)
    assert delivered(valkey, partition, "busy") == entry(valkey, partition, 4)
    assert delivered(valkey, partition, "idle") is None


@pytest.mark.parametrize("error", [None, StoreAway()], ids=["succeeds", "fails"])
async def test_a_mirror_that_is_destroyed_while_it_is_moved_does_not_come_back(
    valkey: Valkey, store: Store, monkeypatch: pytest.MonkeyPatch, error: StoreAway | None
) -> None:
    partition, mirror = await filled(store), Mirror(store)
    commit(valkey, store, "idle", partition, 5)
    held = HeldMove(partition, monkeypatch)
    held.error = error
    mirror.committed(ORG, "idle", PLACE, 5)
    await held.has_begun.wait()
    destroying = asyncio.create_task(mirror.destroy(ORG, "idle", [PLACE]))
    await asyncio.sleep(0)
    held.may_go_on.set()
    await destroying
    held.error = None
    await until(lambda: not mirror._is_moving)
    assert delivered(valkey, partition, "idle") is None


async def test_a_group_whose_server_is_away_keeps_no_mirror_back_on_the_servers_that_are_well(tmp_path: Path) -> None:
    """The node does not own that group any more, and asks for its last commit once it has moved the mirror."""
    with running(ClusterOfServers(tmp_path / "servers", replicas=0)) as servers:
        first, second = [
            Store(parse_address(servers.url), node_at(number, "127.0.0.1", 9092 + number), StoreOptions())
            for number in (0, 1)
        ]
        try:
            for store in (first, second):
                await store.start()
            await until(lambda: is_up(first) and len(first.nodes.live) == len(second.nodes.live) == 2)
            partition = await filled(first)
            stream = partition.keys.log
            needed = {servers.owner_of_key(key) for key in (stream, first.keys.nodes)}
            away = next(server for server in servers.servers if server not in needed)

            def group(owner: Store, *, is_well: bool) -> str:
                known = (name for name in map(str, count()) if owner.nodes.owns_now(name.encode()))
                offsets = owner.default.keys.group_offsets
                return next(name for name in known if (servers.owner_of_key(offsets(name)) is not away) is is_well)

            lost, well = group(second, is_well=False), group(first, is_well=True)
            gone = next(shard for shard in first.topology.shards if shard.link.address.port == away.port)
            away.kill()
            await until(lambda: not gone.link.is_up)
            mirror = Mirror(first)
            mirror.committed(ORG, lost, PLACE, 2)
            mirror.committed(ORG, well, PLACE, 5)
            server = servers.owner_of_key(stream)
            await until(lambda: mirror_name(well).encode() in [row[1] for row in server.ask("XINFO", "GROUPS", stream)])
        finally:
            for store in (first, second):
                await store.close()
