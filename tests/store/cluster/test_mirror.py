"""Mirrors of groups: moved by whoever stored a commit, and left where the last commit is."""

from __future__ import annotations

from headrace.store.cluster.owned.groups import Committed, commit_field, pack_commit
from headrace.store.cluster.owned.mirror import Mirror, mirror_name
from headrace.store.partition.base import Partition
from headrace.store.store import Store
from tests.store.conftest import OpenStore
from tests.store.produced import log_partition, produce, until
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


async def moved(store: Store, group: str, offset: int) -> None:
    """A node moves the mirror to what it stored, and is done."""
    mirror = Mirror(store)
    mirror.committed(ORG, group, PLACE, offset)
    await mirror._round_ended.wait()


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
