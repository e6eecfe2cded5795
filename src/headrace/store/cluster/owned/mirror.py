"""Mirrors groups in Redis: each commit moves a Redis consumer group `kafka:<group>` on the partition's stream.

It is for people and Redis tools (`XINFO GROUPS`), is updated after the response, and can be lost without harm. Its
position is the id of the last entry wholly below the commit. Redis counts entries, and so does its lag: joined batches
in the format `log`, records in the format `stream`.

While mirrors are being moved, only the newest commit per partition is kept for the next round, so a mirror costs Redis
a bounded number of commands a second, however often a group commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.redis.errors import RedisError
from headrace.store.redis.route import Route
from headrace.wire.errors import KafkaError
from headrace.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_ROUND_S = 0.05
_COUNTS_ENTRIES_SINCE = 7


def mirror_name(group_id: str) -> str:
    """The Redis group of a Kafka group; never collides with groups created by Redis code."""
    return f"kafka:{group_id}"


class _Mirrored(NamedTuple):
    """A group's position in a partition."""

    org: str
    group_id: str
    place: TopicPartition


class Mirror:
    """Moves the mirrors."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: dict[_Mirrored, int] = {}
        self._is_moving = False
        self._round_ended = asyncio.Event()

    def committed(self, org: str, group_id: str, place: TopicPartition, offset: int) -> None:
        """Notes a commit; the mirror follows soon."""
        self._due[_Mirrored(org, group_id, place)] = offset
        if not self._is_moving:
            self._is_moving = True
            self._store.spawn(self._move_all())

    async def settled(self) -> None:
        """Returns when every commit noted so far is mirrored."""
        while self._is_moving:
            await self._round_ended.wait()

    async def destroy(self, org: str, group_id: str, places: Iterable[TopicPartition]) -> None:
        """Removes mirrors; none of them comes back by a commit that was noted before."""
        places = list(places)
        for place in places:
            self._due.pop(_Mirrored(org, group_id, place), None)
        if self._is_moving:
            await self._round_ended.wait()
        organisation = self._store.organisations[org]
        for name, number in places:
            if (topic := organisation.catalogue.by_name.get(name)) is not None:
                stream = topic.keys(organisation.keys, number).log
                self._store.topology.slot_of(stream).link.post("XGROUP", "DESTROY", stream, mirror_name(group_id))

    async def _move_all(self) -> None:
        try:
            while self._due:
                self._round_ended.clear()
                due, self._due = self._due, {}
                for mirrored, offset in due.items():
                    await self._try_to_move(mirrored, offset)
                self._round_ended.set()
                await asyncio.sleep(_ROUND_S)
        finally:
            self._is_moving = False
            self._round_ended.set()

    async def _try_to_move(self, mirrored: _Mirrored, offset: int) -> None:
        try:
            await self._move(mirrored, offset)
        except KafkaError as error:
            log.debug("a mirror was not updated", extra={"group": mirrored.group_id, "why": str(error)})
        except Exception:
            log.exception("a mirror was not updated", extra={"group": mirrored.group_id})

    async def _move(self, mirrored: _Mirrored, offset: int) -> None:
        organisation, (name, number) = self._store.organisations[mirrored.org], mirrored.place
        topic = organisation.catalogue.by_name.get(name)
        if topic is None or number >= topic.partitions:
            return
        partition = await organisation.partition(topic, number)
        identity, entries = await partition.mirror_position(offset)
        where = (partition.keys.log, mirror_name(mirrored.group_id), identity)
        counted = ("ENTRIESREAD", entries) if _counts_entries(partition.link) else ()
        try:
            await partition.link.call("XGROUP", "SETID", *where, *counted)
        except RedisError as error:
            if error.kind != "NOGROUP":
                raise
            await _create(partition.link, where, counted)


async def _create(link: Route, where: tuple[str, ...], counted: tuple[str | int, ...]) -> None:
    """Never with MKSTREAM: a stream that is not there is a partition that was deleted."""
    try:
        await link.call("XGROUP", "CREATE", *where, *counted)
    except RedisError as error:
        if error.kind != "BUSYGROUP":
            raise


def _counts_entries(link: Route) -> bool:
    """Redis before 7 knows no ENTRIESREAD, and shows no lag."""
    version = link.server.get("valkey_version") or link.server.get("redis_version", "0")
    return int(version.split(".")[0]) >= _COUNTS_ENTRIES_SINCE
