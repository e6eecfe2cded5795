"""Mirrors groups in Redis: each commit moves a Redis consumer group `kafka:<group>` on the partition's stream.

It is for people and Redis tools (`XINFO GROUPS`), is updated after the response, and can be lost without harm. Its
position is the id of the last entry wholly below the commit. Redis counts entries, and so does its lag: joined batches
in the format `log`, records in the format `stream`.

While mirrors are being moved, only the newest commit per partition is kept for the next round, so a mirror costs Redis
a bounded number of commands a second, however often a group commits. Mirrors are moved one at a time; destroying one
waits only for its own move, if that is in flight: its outcome may come late, and would bring the mirror back.

In a cluster a commit may be stored while the server of its partition is away. Its mirror is moved later, to what is
stored by then: the group may have another owner, whose mirror is newer than ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.store.redis.errors import OutcomeUnknown, RedisError, StoreAway
from headrace.store.redis.route import Route
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from headrace.store.cluster.catalogue import Topic
    from headrace.store.redis.shard import Shard
    from headrace.store.store import Store

log = logging.getLogger(__name__)

_ROUND_S = 0.05
_AGAIN_S = 1.0
_PASSING = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
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
        self._due: dict[_Mirrored, int | None] = {}
        """To which offset; None is the one that is stored."""
        self._round: dict[_Mirrored, int | None] = {}
        """Those of the present round that have not been moved yet."""
        self._is_moving = False
        self._in_flight: _Mirrored | None = None
        self._landed = asyncio.Event()

    def committed(self, org: str, group_id: str, place: TopicPartition, offset: int) -> None:
        """Notes a commit; the mirror follows soon."""
        self._due[_Mirrored(org, group_id, place)] = offset
        if not self._is_moving:
            self._is_moving = True
            self._store.spawn(self._move_all())

    async def destroy(self, org: str, group_id: str, places: Iterable[TopicPartition]) -> None:
        """Removes mirrors; none of them comes back by a commit that was noted before."""
        places = list(places)
        doomed = {_Mirrored(org, group_id, place) for place in places}
        self._forget(doomed)
        if self._in_flight in doomed:
            await self._landed.wait()
            self._forget(doomed)  # if it failed, it is due again
        organisation = self._store.organisations[org]
        for name, number in places:
            if (topic := organisation.catalogue.by_name.get(name)) is not None:
                stream = topic.keys(organisation.keys, number).log
                self._store.topology.slot_of(stream).link.post("XGROUP", "DESTROY", stream, mirror_name(group_id))

    def _forget(self, doomed: Iterable[_Mirrored]) -> None:
        for mirrored in doomed:
            self._due.pop(mirrored, None)
            self._round.pop(mirrored, None)

    async def _move_all(self) -> None:
        try:
            while self._due:
                self._round, self._due = self._due, {}
                all_moved = await self._move_round()
                await asyncio.sleep(_ROUND_S if all_moved else _AGAIN_S)
        finally:
            self._is_moving = False

    async def _move_round(self) -> bool:
        """False if some have to be tried again, which are due again."""
        all_moved = True
        away: set[Shard] = set()
        for mirrored in list(self._round):
            if mirrored not in self._round:
                continue  # it was destroyed meanwhile
            offset = self._round.pop(mirrored)
            self._in_flight = mirrored
            self._landed.clear()
            try:
                if not await self._try_to_move(mirrored, offset, away):
                    self._due.setdefault(mirrored, None)
                    all_moved = False
            finally:
                self._in_flight = None
                self._landed.set()
        return all_moved

    async def _try_to_move(self, mirrored: _Mirrored, offset: int | None, away: set[Shard]) -> bool:
        """False if it has to be tried again."""
        try:
            await self._move(mirrored, offset, away)
        except KafkaError as error:
            log.debug("a mirror was not updated", extra={"group": mirrored.group_id, "why": str(error)})
            return error.code not in _PASSING
        except Exception:
            log.exception("a mirror was not updated", extra={"group": mirrored.group_id})
        return True

    async def _move(self, mirrored: _Mirrored, offset: int | None, away: set[Shard]) -> None:
        """Moves a mirror to an offset, or to the one that is stored.

        Unless the group is ours, its owner may have moved the mirror before us: it stays only where the group is.
        """
        stored = await self._stored(mirrored, away) if offset is None else offset
        while stored is not None:
            offset = stored
            await self._set(mirrored, offset, away)
            if self._store.nodes.owns_now(mirrored.group_id.encode()):
                return
            stored = await self._stored(mirrored, away)
            if stored == offset:
                return

    async def _stored(self, mirrored: _Mirrored, away: set[Shard]) -> int | None:
        """The offset that is stored, by whoever owns the group."""
        offsets = self._store.organisations[mirrored.org].keys.group_offsets(mirrored.group_id)
        with _asking(self._store.topology.slot_of(offsets).shard, away):
            stored = await self._store.groups.committed(*mirrored)
        topic = self._topic_of(mirrored)
        return stored.offset if stored is not None and topic is not None and stored.topic_id == topic.id else None

    async def _set(self, mirrored: _Mirrored, offset: int, away: set[Shard]) -> None:
        topic, number = self._topic_of(mirrored), mirrored.place[1]
        if topic is not None and number < topic.partitions:
            stream = topic.keys(self._store.organisations[mirrored.org].keys, number).log
            with _asking(self._store.topology.slot_of(stream).shard, away):
                await self._set_in(topic, mirrored, offset)

    async def _set_in(self, topic: Topic, mirrored: _Mirrored, offset: int) -> None:
        organisation, number = self._store.organisations[mirrored.org], mirrored.place[1]
        partition = await organisation.partition(topic, number)
        identity, entries = await partition.mirror_position(offset)
        where = (partition.keys.log, mirror_name(mirrored.group_id), identity)
        counted = ("ENTRIESREAD", entries) if _counts_entries(partition.link) else ()
        # Never with MKSTREAM: a stream that is not there is a partition that was deleted.
        for how, otherwise in (("SETID", "NOGROUP"), ("CREATE", "BUSYGROUP"), ("SETID", "")):
            try:
                await partition.link.call("XGROUP", how, *where, *counted)
                return
            except RedisError as error:
                if error.kind != otherwise:
                    raise

    def _topic_of(self, mirrored: _Mirrored) -> Topic | None:
        return self._store.organisations[mirrored.org].catalogue.by_name.get(mirrored.place[0])


@contextlib.contextmanager
def _asking(shard: Shard, away: set[Shard]) -> Iterator[None]:
    """Around what a server is asked for: one that is away is asked once in a round."""
    if shard in away:
        raise StoreAway
    try:
        yield
    except (StoreAway, OutcomeUnknown):
        away.add(shard)
        raise


def _counts_entries(link: Route) -> bool:
    """Redis before 7 knows no ENTRIESREAD, and shows no lag."""
    version = link.server.get("valkey_version") or link.server.get("redis_version", "0")
    return int(version.split(".")[0]) >= _COUNTS_ENTRIES_SINCE
