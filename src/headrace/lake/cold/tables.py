"""The tables that cold records are read from: which snapshot of each is recent enough for a request.

The rule: a table belongs to this topic of this cluster. A snapshot may be some seconds old, because files never change
and each record has only one place; a trim requires a fresh one. Delta's incremental update does not notice that a table
was deleted or replaced, so a fresh snapshot comes from a newly opened table, with every listed file checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.cold_log import ColdAway, ColdPartition
from headrace.lake.storage.place import Place, reason
from headrace.lake.table.catalogue import place_of_table
from headrace.lake.table.names import folder_of, folder_of_organisation
from headrace.lake.table.snapshot import Identity, Snapshot, TableRefused
from headrace.organisations import DEFAULT_ORGANISATION

YOUNG_S = 2.0
"""A snapshot up to this age counts as current, unless a fresh one is required."""

STALE_S = 10.0
"""Readers may use a snapshot up to this age while it is being refreshed."""

MOST_TABLES = 1_000
"""Tables kept open; the least recently used is closed first."""

_NEVER = float("-inf")


class NothingHeld(Exception):
    """There is no table of this topic; the message says what is there instead."""


class Seen(msgspec.Struct, frozen=True):
    """A snapshot, when it was taken, and when the table was last reopened with all files checked."""

    snapshot: Snapshot
    taken_s: float
    taken_anew_s: float


def lacks(partition: ColdPartition, offset: int) -> ColdAway:
    """The error if no live file covers an offset."""
    return ColdAway(f"The table of {partition.topic} lacks offset {offset} of partition {partition.number}.")


def why_nothing(snapshot: Snapshot, partition: ColdPartition) -> str:
    """Why a topic's table has nothing of a partition."""
    if snapshot.foreign:
        return (
            f"The table of {partition.topic} has files that the archive did not write, such as {snapshot.foreign[0]}, "
            f"and none of partition {partition.number}: Delta's RESTORE takes it back to before."
        )
    if snapshot.lost:
        return f"Files of the table of {partition.topic} are lost or truncated, such as {min(snapshot.lost)}."
    return f"The table of {partition.topic} has no records of partition {partition.number} yet."


_Key = tuple[str, str, bytes]
"""Organisation, topic, topic id."""


class KnownTables:
    """The tables of a lake, opened on demand."""

    def __init__(self, lake: Place, cluster_id: str, executor: Executor) -> None:
        self._lake, self._cluster_id, self._executor = lake, cluster_id, executor
        self._tables: OrderedDict[_Key, _Table] = OrderedDict()
        self._renewing: dict[_Key, asyncio.Task[None]] = {}
        self._looking: set[asyncio.Task[Seen]] = set()

    def _root(self, organisation: str) -> Place:
        return self._lake if organisation == DEFAULT_ORGANISATION else self._lake / folder_of_organisation(organisation)

    async def fresh(self, partition: ColdPartition) -> Snapshot:
        """A fresh snapshot."""
        began_s = time.monotonic()
        return await self._snapshot(partition, _Table.open, lambda seen: seen.taken_anew_s >= began_s)

    async def young(self, partition: ColdPartition) -> Snapshot:
        """A recent snapshot."""
        now_s = time.monotonic()
        return await self._snapshot(partition, _Table.update, lambda seen: now_s - seen.taken_s < YOUNG_S)

    async def covering(self, partition: ColdPartition, first: int, stop: int, *, fresh: bool = False) -> Snapshot:
        """A snapshot that covers [first, stop) if the table does: another broker may have trimmed by a newer one."""
        snapshot = await (self.fresh if fresh else self.young)(partition)
        missing = snapshot.of(partition.number).lacks(first, stop)
        if missing is None:
            return snapshot
        if fresh:
            raise lacks(partition, missing)
        return await self.covering(partition, first, stop, fresh=True)

    async def any(self, partition: ColdPartition) -> Snapshot:
        """The last snapshot, if there is one."""
        return await self._snapshot(partition, _Table.update, lambda seen: True)

    async def _snapshot(
        self, partition: ColdPartition, look: Callable[[_Table], Seen], good: Callable[[Seen], bool]
    ) -> Snapshot:
        key = (partition.organisation, partition.topic, partition.topic_id)
        table = self._tables.get(key)
        if table is None:
            identity = Identity(self._cluster_id, partition.topic, partition.topic_id)
            table = self._tables[key] = _Table(self._root(partition.organisation), identity)
            if len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        seen = table.seen
        if seen is None or not good(seen):
            # A caller that stops waiting does not cancel the lookup, and a table is looked up only once at a time.
            looking = asyncio.create_task(self._look(table, look, good))
            self._looking.add(looking)
            looking.add_done_callback(self._looked)
            seen = await asyncio.shield(looking)
        elif time.monotonic() - seen.taken_s > STALE_S and key not in self._renewing:
            renewal = self._renewing[key] = asyncio.create_task(self._renew(partition))
            renewal.add_done_callback(lambda _: self._renewing.pop(key))
        return self._checked(seen.snapshot, partition)

    async def _look(self, table: _Table, look: Callable[[_Table], Seen], good: Callable[[Seen], bool]) -> Seen:
        async with table.lock:
            if table.seen is not None and good(table.seen):
                return table.seen
            return await asyncio.get_running_loop().run_in_executor(self._executor, look, table)

    def _looked(self, looking: asyncio.Task[Seen]) -> None:
        self._looking.discard(looking)
        if not looking.cancelled():
            looking.exception()  # those still waiting get it

    async def _renew(self, partition: ColdPartition) -> None:
        with contextlib.suppress(ColdAway, NothingHeld):  # the next request gets the reason
            await self.young(partition)

    def _checked(self, snapshot: Snapshot, partition: ColdPartition) -> Snapshot:
        """Refuses the table of another topic or cluster."""
        identity = snapshot.identity
        if identity.cluster_id != self._cluster_id or identity.topic != partition.topic:
            raise NothingHeld(
                f"The table in {snapshot.place} is of topic {identity.topic} of cluster "
                f"{identity.cluster_id}, not {partition.topic} of {self._cluster_id}."
            )
        if identity.topic_id != partition.topic_id:
            raise NothingHeld(
                f"The table in {snapshot.place} is of an earlier topic {partition.topic}, which was "
                "deleted; the archive will move it aside when it reaches the new one."
            )
        return snapshot


class _Table:
    """One table and its last snapshot. `open` and `update` block, and run one at a time under `lock`."""

    def __init__(self, lake: Place, identity: Identity) -> None:
        self.seen: Seen | None = None
        self.lock = asyncio.Lock()
        self._lake, self._identity = lake, identity
        self._delta: DeltaTable | None = None

    def open(self) -> Seen:
        """Reopens the table and checks that every file exists."""
        return self._look(anew=True)

    def update(self) -> Seen:
        """Adds the commits since."""
        return self._look(anew=False)

    def _look(self, *, anew: bool) -> Seen:
        began_s, before, delta = time.monotonic(), self.seen, self._delta
        place = before.snapshot.place if before is not None else self._lake / folder_of(self._identity.topic)
        self._delta = None
        try:
            if anew or before is None or delta is None:
                place = place_of_table(self._lake, self._identity)
                delta = place.delta()
                snapshot = Snapshot.take(place, delta, before.snapshot if before is not None else None)
                if anew:
                    snapshot = snapshot.without(file.path for file in snapshot.find_lost())
                self.seen = Seen(snapshot, began_s, began_s if anew else _NEVER)
            else:
                self.seen = Seen(before.snapshot.update(delta), began_s, before.taken_anew_s)
        except TableNotFoundError:
            self.seen = None
            raise NothingHeld(f"There is no table in {place}.") from None
        except TableRefused as refused:
            self.seen = None
            raise ColdAway(str(refused)) from None
        except (DeltaError, OSError) as error:
            # It may be temporary, and reads from files that were live before can continue.
            raise ColdAway(f"The table in {place} cannot be read: {reason(error)}") from None
        self._delta = delta
        return self.seen
