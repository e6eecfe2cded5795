"""Snapshots of topics' tables for reading cold records: which files are live, and what they stand for.

Rule kept here: what is held is what live files cover, told by their names, of a table that belongs to this very topic
of this very cluster. A snapshot may be some seconds old, because files never change and each record has but one
place; who trims asks for a fresh one. Delta's incremental update does not see that a table was deleted or replaced,
so a fresh snapshot is one of a table opened anew, with every file that it names seen at its place.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.cold_log import ColdAway, ColdPartition, Held
from headrace.lake.catalogue import place_of_table
from headrace.lake.files import RangeFile, coverage_by_partition, read_name
from headrace.lake.folders import folder_of
from headrace.lake.place import Place, reason
from headrace.lake.table import Identity, TableRefused, read_identity

YOUNG_S = 2.0
"""A snapshot this old is as good as one of now to whoever does not insist."""

STALE_S = 10.0
"""Readers go on with an older one, and have it renewed meanwhile."""

MOST_TABLES = 1_000
"""Kept open; the one that was asked for longest ago goes first."""

_NEVER = float("-inf")


class NothingHeld(Exception):
    """There is no table of this topic, as a sentence that says what is there instead."""


class PartitionFiles(msgspec.Struct, frozen=True):
    """The live files of one partition, in the order of offsets."""

    files: Sequence[RangeFile]
    starts: Sequence[int]

    def at(self, offset: int) -> int | None:
        """The index of the file that covers an offset."""
        index = bisect.bisect_right(self.starts, offset) - 1
        return index if index >= 0 and offset < self.files[index].end else None

    def held(self) -> Held:
        """The last stretch without a break."""
        first = len(self.files) - 1
        while first and self.files[first - 1].end == self.files[first].start:
            first -= 1
        size_bytes = sum(file.size_bytes for file in self.files[first:])
        return Held(self.files[first].start, self.files[-1].end, size_bytes)

    def span(self, partition: ColdPartition, first: int, stop: int) -> Sequence[RangeFile]:
        """The files that cover [first, stop) without a break, or `ColdAway`."""
        if first >= stop:
            return []
        begin, end = self.at(first), self.at(stop - 1)
        if begin is None or end is None:
            raise lacks(partition, first if begin is None else stop - 1)
        chosen = self.files[begin : end + 1]
        for one, other in pairwise(chosen):
            if one.end != other.start:
                raise lacks(partition, one.end)
        return chosen


def lacks(partition: ColdPartition, offset: int) -> ColdAway:
    """The answer where no live file covers an offset."""
    return ColdAway(f"The table of {partition.topic} lacks offset {offset} of partition {partition.number}.")


_NO_FILES = PartitionFiles([], [])


class Snapshot(msgspec.Struct, frozen=True):
    """The live files of a table, and the highest timestamp of each where Delta has it."""

    identity: Identity
    partitions: dict[int, PartitionFiles]
    newest_ms: dict[str, int]
    taken_anew_s: float
    taken_s: float
    foreign: str | None
    absent: str | None

    def files(self, partition: ColdPartition) -> PartitionFiles:
        return self.partitions.get(partition.number, _NO_FILES)

    def why_nothing(self, partition: ColdPartition) -> str:
        """Why a table of this topic holds nothing of a partition."""
        if self.foreign:
            return (
                f"The table of {partition.topic} has files that the archive did not write, such as {self.foreign}, "
                f"and none of partition {partition.number}: Delta's RESTORE takes it back to before."
            )
        if self.absent:
            return f"Files of the table of {partition.topic} are gone or cut off, such as {self.absent}."
        return f"The table of {partition.topic} has nothing of partition {partition.number} yet."


class ColdTables:
    """The tables of a lake, opened when they are first asked for."""

    def __init__(self, lake: Place, cluster_id: str, executor: Executor) -> None:
        self._lake, self._cluster_id, self._executor = lake, cluster_id, executor
        self._tables: OrderedDict[tuple[str, bytes], _Table] = OrderedDict()
        self._renewing: dict[str, asyncio.Task[None]] = {}
        self._looking: set[asyncio.Task[Snapshot]] = set()

    def place(self, partition: ColdPartition) -> Place:
        """Where a topic's table lies."""
        table = self._tables.get((partition.topic, partition.topic_id))
        return table.place if table is not None else self._lake / folder_of(partition.topic)

    async def fresh(self, partition: ColdPartition) -> Snapshot:
        """The table as it is now."""
        began_s = time.monotonic()
        return await self._snapshot(partition, _Table.open, lambda taken: taken.taken_anew_s >= began_s)

    async def young(self, partition: ColdPartition) -> Snapshot:
        """The table as it was a moment ago."""
        now_s = time.monotonic()
        return await self._snapshot(partition, _Table.update, lambda taken: now_s - taken.taken_s < YOUNG_S)

    async def covering(self, partition: ColdPartition, first: int, stop: int) -> Snapshot:
        """One that covers [first, stop) if the table does: another broker may have trimmed by a younger one."""
        snapshot = await self.young(partition)
        try:
            snapshot.files(partition).span(partition, first, stop)
        except ColdAway:
            return await self.fresh(partition)
        return snapshot

    async def any(self, partition: ColdPartition) -> Snapshot:
        """The table as last seen, if it was seen at all."""
        return await self._snapshot(partition, _Table.update, lambda taken: True)

    async def _snapshot(
        self, partition: ColdPartition, look: Callable[[_Table], Snapshot], good: Callable[[Snapshot], bool]
    ) -> Snapshot:
        key = (partition.topic, partition.topic_id)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = _Table(self._lake, Identity(self._cluster_id, *key))
            if len(self._tables) > MOST_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        taken = table.taken
        if taken is None or not good(taken):
            # Who stops waiting does not stop the look, and nobody looks at the same table meanwhile.
            looking = asyncio.create_task(self._look(table, look, good))
            self._looking.add(looking)
            looking.add_done_callback(self._looked)
            taken = await asyncio.shield(looking)
        elif time.monotonic() - taken.taken_s > STALE_S and partition.topic not in self._renewing:
            renewal = self._renewing[partition.topic] = asyncio.create_task(self._renew(partition))
            renewal.add_done_callback(lambda _: self._renewing.pop(partition.topic))
        return self._checked(taken, partition)

    async def _look(
        self, table: _Table, look: Callable[[_Table], Snapshot], good: Callable[[Snapshot], bool]
    ) -> Snapshot:
        async with table.lock:
            if table.taken is not None and good(table.taken):
                return table.taken
            return await asyncio.get_running_loop().run_in_executor(self._executor, look, table)

    def _looked(self, looking: asyncio.Task[Snapshot]) -> None:
        self._looking.discard(looking)
        if not looking.cancelled():
            looking.exception()  # whoever still waits for it gets it

    async def _renew(self, partition: ColdPartition) -> None:
        with contextlib.suppress(ColdAway, NothingHeld):  # whoever needs it asks again and gets the reason
            await self.young(partition)

    def _checked(self, taken: Snapshot, partition: ColdPartition) -> Snapshot:
        """A table of another topic or cluster holds nothing of this one."""
        identity = taken.identity
        if identity.cluster_id != self._cluster_id or identity.topic != partition.topic:
            raise NothingHeld(
                f"The table in {self.place(partition)} is of topic {identity.topic} of cluster "
                f"{identity.cluster_id}, not {partition.topic} of {self._cluster_id}."
            )
        if identity.topic_id != partition.topic_id:
            raise NothingHeld(
                f"The table in {self.place(partition)} is of an earlier topic {partition.topic}, which was "
                "deleted; the archive moves it aside when it comes to the new one."
            )
        return taken


class _Table:
    """One table: what was last seen of it. `open` and `update` block, and run one at a time under `lock`."""

    def __init__(self, lake: Place, identity: Identity) -> None:
        self.taken: Snapshot | None = None
        self.lock = asyncio.Lock()
        self._lake, self._identity = lake, identity
        self.place = lake / folder_of(identity.topic)
        self._delta: DeltaTable | None = None
        self._version = -1
        self._taken_anew_s = _NEVER
        self._known: dict[str, RangeFile | None] = {}
        self._absent: frozenset[str] = frozenset()

    def open(self) -> Snapshot:
        """Opens it anew, whatever was known of it, and sees every file at its place."""
        self._delta = None
        return self._look(see_files=True)

    def update(self) -> Snapshot:
        """Looks at what was committed since."""
        return self._look(see_files=False)

    def _look(self, see_files: bool) -> Snapshot:
        taken_s = time.monotonic()
        try:
            if self._delta is None:
                self.place = place_of_table(self._lake, self._identity)
                self._delta, self._absent = self.place.delta(), frozenset()
                self._taken_anew_s = taken_s if see_files else _NEVER
                self.taken = self._list(self._delta, taken_s)
            else:
                self._delta.update_incremental()
                if self.taken is not None and self._delta.version() == self._version:
                    self.taken = msgspec.structs.replace(self.taken, taken_s=taken_s)
                else:
                    self.taken = self._list(self._delta, taken_s)
            if see_files and (absent := self._find_absent(self.taken)):
                self._absent = absent
                self.taken = self._list(self._delta, taken_s)
            self._version = self._delta.version()
            return self.taken
        except TableNotFoundError:
            self.taken = self._delta = None
            raise NothingHeld(f"There is no table in {self.place}.") from None
        except TableRefused as refused:
            self.taken = self._delta = None
            raise ColdAway(str(refused)) from None
        except (DeltaError, OSError) as error:
            # It may pass, and who reads from files that were live before may go on.
            self._delta = None
            raise ColdAway(f"The table in {self.place} cannot be read: {reason(error)}") from None

    def _present(self, files: Iterable[RangeFile | None]) -> Iterator[RangeFile]:
        return (file for file in files if file is not None and file.path not in self._absent)

    def _find_absent(self, taken: Snapshot) -> frozenset[str]:
        """The files that the log names and that are gone, or have another size: nobody can read them."""
        absent: set[str] = set()
        for number, covered in taken.partitions.items():
            sizes = {found.path: found.size_bytes for found in self.place.files(f"p{number}")}
            absent.update(file.path for file in covered.files if sizes.get(file.path) != file.size_bytes)
        return frozenset(absent)

    def _list(self, delta: DeltaTable, taken_s: float) -> Snapshot:
        identity, _ = read_identity(self.place, delta)
        actions = pa.table(delta.get_add_actions(flatten=True))
        paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
        known, before = {}, self._known
        for path, size in zip(paths, sizes, strict=True):
            known[path] = before[path] if path in before else read_name(path, size)
        self._known = known
        newest = actions["max.timestamp_ms"].to_pylist() if "max.timestamp_ms" in actions.column_names else []
        return Snapshot(
            identity,
            {
                number: PartitionFiles(covered.files, [file.start for file in covered.files])
                for number, covered in coverage_by_partition(self._present(known.values())).items()
            },
            {path: at_ms for path, at_ms in zip(paths, newest, strict=False) if at_ms is not None},
            self._taken_anew_s,
            taken_s,
            next((path for path, file in known.items() if file is None), None),
            min(self._absent, default=None),
        )
