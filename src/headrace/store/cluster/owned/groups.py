"""Stored consumer groups: owned state with committed offsets as rows, and unique slugs.

A committed offset names the topic's id: after a topic is deleted and recreated, old commits no longer count.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.store.cluster.owned.things import NEVER_EXPIRES, OwnedKeys, OwnedStore
from headrace.store.keys import ClusterKeys
from headrace.store.redis.topology import Topology
from headrace.wire.topic_partition import TopicPartition


class Committed(msgspec.Struct, frozen=True, array_like=True):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: str


class PendingOffset(NamedTuple):
    """The row of an offset that counts once its transaction is committed."""

    producer_id: int
    topic: str
    partition: int


class PendingCommit(msgspec.Struct, frozen=True, array_like=True):
    """Such an offset, and its transaction."""

    transactional_id: str
    number: int
    committed: Committed


Row = TopicPartition | PendingOffset
_PENDING = "\0txn:"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Committed).decode
_decode_pending = msgspec.json.Decoder(PendingCommit).decode


class GroupStore:
    """Reads and writes groups."""

    def __init__(self, topology: Topology, keys: ClusterKeys) -> None:
        self._topology = topology
        self._keys = keys
        self.owned = OwnedStore(
            topology,
            OwnedKeys(
                listing=lambda org: keys.of(org).groups,
                document=lambda org, group_id: keys.of(org).group(group_id),
                rows=lambda org, group_id: keys.of(org).group_offsets(group_id),
                registers=lambda org: (keys.of(org).group_slugs,),
            ),
        )

    async def committed(self, org: str, group_id: str, place: TopicPartition) -> Committed | None:
        """A committed offset as it is stored now, whoever owns the group."""
        rows = self._keys.of(org).group_offsets(group_id)
        raw = await self._topology.slot_of(rows).link.call("HGET", rows, commit_field(place))
        return _decode(raw) if raw else None

    async def reserve_slug(self, org: str, group_id: str, slug: str) -> bool:
        """Claims a slug for a stored group; false if another group has it.

        A holder that is not stored was deleted: a slug is reserved only by groups that are.
        """
        keys = self._keys.of(org)
        slugs = self._topology.slot_of(keys.group_slugs)
        if await slugs.link.call("HSETNX", keys.group_slugs, slug, group_id):
            return True
        holder = (await slugs.link.call("HGET", keys.group_slugs, slug) or b"").decode()
        if holder == group_id:
            return True
        group = keys.group(holder)
        if await self._topology.slot_of(group).link.call("PTTL", group) == NEVER_EXPIRES:
            return False
        return bool(await slugs.scripts.run("replace_slug", [keys.group_slugs], [slug, holder, group_id]))

    async def free_slug(self, org: str, group_id: str, slug: str) -> None:
        """The group is deleted; a slug that stays behind goes to the next group that asks."""
        slugs = self._keys.of(org).group_slugs
        await self._topology.slot_of(slugs).scripts.run("free_slug", [slugs], [slug, group_id])


def pack_commit(committed: Committed | PendingCommit) -> bytes:
    return _encode(committed)


def commit_field(row: Row) -> str:
    if isinstance(row, PendingOffset):
        return f"{_PENDING}{row.producer_id}:{row.topic}:{row.partition}"
    return f"{row[0]}:{row[1]}"


def unpack_row(field: str, raw: bytes) -> tuple[Row, Committed | PendingCommit]:
    """ValueError if it cannot be read."""
    if not field.startswith(_PENDING):
        return topic_partition_of(field), _decode(raw)
    producer_id, _, place = field.removeprefix(_PENDING).partition(":")
    return PendingOffset(int(producer_id), *topic_partition_of(place)), _decode_pending(raw)


def topic_partition_of(field: str) -> TopicPartition:
    """ValueError if it is none."""
    topic, _, partition = field.rpartition(":")
    return topic, int(partition)
