"""Redis shows the groups: each commit moves a Redis consumer group `kafka:<group>` on the partition's stream.

It is for people and Redis tools to see (`XINFO GROUPS`), it follows behind the answers, and losing it loses nothing.
Its position is the id of the last entry wholly below the commit; in this format Redis counts entries, not records, so
its lag does too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.store.entries import base_of, parse_entry
from headrace.store.errors import RedisError
from headrace.store.partition import Partition
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)


def mirror_name(group_id: str) -> str:
    """The Redis group of a Kafka group: never the name of one that Redis code made."""
    return f"kafka:{group_id}"


class Mirror:
    """Moves the mirrors, the newest commit of each only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[tuple[str, str, int], int] = {}
        self._moving: asyncio.Task[None] | None = None
        self._counts_entries = True

    def committed(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Notes a commit; the mirror follows soon."""
        self._due[group_id, topic, partition] = offset
        if self._moving is None or self._moving.done():
            self._moving = asyncio.create_task(self._move_all(), name="mirror of groups")

    async def settled(self) -> None:
        """Returns when every commit noted so far is mirrored."""
        while self._moving is not None and not self._moving.done():
            await asyncio.wait([self._moving])

    async def destroy(self, group_id: str, places: list[tuple[str, int]]) -> None:
        """Removes the mirrors of a deleted group."""
        for topic_name, number in places:
            self._due.pop((group_id, topic_name, number), None)
            topic = self._store.catalogue.by_name.get(topic_name)
            if topic is not None:
                self._store.post("XGROUP", "DESTROY", topic.keys(self._store.keys, number).log, mirror_name(group_id))

    async def _move_all(self) -> None:
        while self._due:
            (group_id, topic, partition), offset = self._due.popitem()
            try:
                await self._move(group_id, topic, partition, offset)
            except KafkaError as error:
                log.debug("a mirror was not moved", extra={"group": group_id, "why": str(error)})
            except Exception:
                log.exception("a mirror was not moved", extra={"group": group_id})

    async def _move(self, group_id: str, topic_name: str, number: int, offset: int) -> None:
        topic = self._store.catalogue.by_name.get(topic_name)
        if topic is None or number >= topic.partitions:
            return
        partition = await self._store.partition(topic, number)
        base, entries = await _position(partition, offset)
        identity = f"{base}-1" if base >= 0 else "0-0"
        where = (partition.keys.log, mirror_name(group_id), identity)
        counted = ("ENTRIESREAD", entries) if self._counts_entries else ()
        try:
            await self._store.link.call("XGROUP", "SETID", *where, *counted)
        except RedisError as error:
            if error.kind == "NOGROUP":
                await self._create(where, counted)
            elif self._counts_entries and error.kind == "ERR":
                self._counts_entries = False  # Redis before 7 knows no ENTRIESREAD
                await self._move(group_id, topic_name, number, offset)
            else:
                raise

    async def _create(self, where: tuple[str, ...], counted: tuple[str | int, ...]) -> None:
        try:
            await self._store.link.call("XGROUP", "CREATE", *where, *counted)
        except RedisError as error:
            if error.kind != "BUSYGROUP":
                raise


async def _position(partition: Partition, offset: int) -> tuple[int, int]:
    """Base of the last entry wholly below an offset (-1 if none), and how many entries that makes."""
    if offset >= partition.end:
        return partition.last_base, partition.index.entries
    point = partition.index.floor(max(offset - 1, 0))
    first, entries = (point.offset, point.entries) if point else (0, 0)
    rows = await partition.store.reads.call("XRANGE", partition.keys.log, f"{first}-0", f"({offset}-0")
    base = -1
    for row in rows:
        entry = parse_entry(row)
        if entry is None or entry.end > offset:
            break
        base, entries = entry.base, entries + 1
    if base < 0 and first > 0:
        before = await partition.store.reads.call("XREVRANGE", partition.keys.log, f"({first}-0", "-", "COUNT", 1)
        base = base_of(before[0]) if before else -1
    return base, entries
