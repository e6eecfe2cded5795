"""A topic's Delta table: whose it is, how far it goes, and the one way rows get into it.

The table is the only position. Each commit carries one application transaction per partition whose version is the next
offset, so of two archives that planned from the same snapshot one commits and the other is refused. What the table
holds is read from its live files alone: after a restore a transaction still says the old offset, and Delta accepts a
commit that names a file which is not there. So a commit first sees every file at its place with its size.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.files import Coverage, RangeFile, coverage_by_partition, read_name
from headrace.lake.log_upkeep import SHORTEN_EVERY, shorten_log
from headrace.lake.notes import Note, in_commit, newest_notes, note_of
from headrace.lake.place import Place
from headrace.lake.rows import TABLE_SCHEMA

CLUSTER, TOPIC, TOPIC_ID, STARTS = "headrace.cluster.id", "headrace.topic", "headrace.topic.id", "headrace.starts"
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_NO_ROWS = Coverage([])
_TRIES = 20
"""Of a commit beside others': an archive, a compaction and an expiry each move the table but rarely."""


class TableRefused(ValueError):
    """This table must not be written to, or cannot be read, and what to do about it."""


class NoTable(TableRefused):
    """There is none, or none yet."""


class StaleArchive(Exception):
    """Somebody else has committed since this one looked: what was planned is void."""


class FileAway(OSError):
    """A file that a task wrote is not where the driver looks for it."""


class Identity(msgspec.Struct, frozen=True):
    """The topic that a table belongs to. Names are used again, ids are not."""

    cluster_id: str
    topic: str
    topic_id: bytes

    def transaction(self, partition: int) -> str:
        """The application id of a partition's transactions."""
        return f"headrace/{self.cluster_id}/{self.topic_id.hex()}/{partition}"


class Written(msgspec.Struct, frozen=True):
    """A file that waits for its commit, with the statistics that readers prune by."""

    file: RangeFile
    stats: str


class LastCommit(msgspec.Struct, frozen=True):
    """When something was last committed, and as which version."""

    version: int
    timestamp_ms: int


class TopicTable:
    """One topic's table as of the last `refresh`."""

    def __init__(self, place: Place) -> None:
        self.place = place
        try:
            self._delta = place.delta()
        except TableNotFoundError:
            raise NoTable(f"There is no Delta table in {place}.") from None
        self.identity, self._starts = read_identity(place, self._delta)
        self.coverage: dict[int, Coverage] = {}
        self.foreign: list[str] = []
        self._known: dict[str, RangeFile | None] = {}
        self._noted: tuple[int, dict[int, Note]] | None = None
        self._look()

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def created_ms(self) -> int:
        return self._delta.metadata().created_time

    def refresh(self) -> None:
        """Looks at what others, or we, committed since; `StaleArchive` if the table is not this topic's any more."""
        # Opened anew: a handle that is updated again and again gets slower with each time, and does not notice that a
        # topic was deleted and made again, and with it its table.
        try:
            delta = self.place.delta()
        except TableNotFoundError:
            raise StaleArchive(f"The table in {self.place} is gone.") from None
        identity, _ = read_identity(self.place, delta)
        if identity != self.identity:
            raise StaleArchive(f"The table in {self.place} belongs to another topic by now.")
        self._delta = delta
        self._look()

    def _look(self) -> None:
        actions = pa.table(self._delta.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        before, self._known = self._known, {}
        for path, size in zip(*actions.to_pydict().values(), strict=True):
            self._known[path] = before[path] if path in before else read_name(path, size)
        self.foreign = sorted(path for path, file in self._known.items() if file is None)
        self.coverage = coverage_by_partition(file for file in self._known.values() if file is not None)

    # How far it goes

    def position(self, partition: int) -> int:
        """The next offset to archive: where the live files end, or where the partition began."""
        covered = self.coverage.get(partition)
        return covered.end if covered else self._starts.get(partition, 0)

    def transaction_version(self, partition: int) -> int | None:
        """The next offset as the last commit said it, which a restore does not take back."""
        return self._delta.transaction_version(self.identity.transaction(partition))

    def last_commit(self) -> LastCommit:
        return LastCommit(self.version, self._delta.history(1)[0]["timestamp"])

    def newest_ms(self) -> dict[str, int]:
        """By file the highest time of its records, where it has any."""
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        if "max.timestamp_ms" not in actions.column_names:
            return {}
        found = zip(actions["path"].to_pylist(), actions["max.timestamp_ms"].to_pylist(), strict=True)
        return {path: at_ms for path, at_ms in found if at_ms is not None}

    def notes(self) -> dict[int, Note]:
        """What the newest commit of ours says about each partition."""
        if self._noted is None or self._noted[0] != self.version:
            self._noted = (self.version, newest_notes(self._delta))
        return self._noted[1]

    # Writing

    def commit(self, written: Sequence[Written]) -> None:
        """Adds these files, of ranges that continue what is there, or raises and adds nothing."""
        added = coverage_by_partition(one.file for one in written)
        check_files(self.place, [one.file for one in written])
        self._transact([], written, lambda: self._continued(added))

    def replace(self, files: Sequence[RangeFile], written: Sequence[Written], *, same_rows: bool) -> None:
        """Puts files in the place of live ones, with the same rows, or takes rows out; raises if they are not live."""
        check_files(self.place, [one.file for one in written])
        self._transact(files, written, lambda: self._replaced(files, written), same_rows=same_rows)

    def _transact(
        self,
        removed: Sequence[RangeFile],
        written: Sequence[Written],
        result: Callable[[], dict[int, Coverage]],
        *,
        same_rows: bool = False,
    ) -> None:
        """Commits what `result` makes of the partitions. What is refused because the table moved is looked at again."""
        now_ms = time.time_ns() // 1_000_000
        changes = not same_rows
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.file.path, one.file.size_bytes, {}, now_ms, changes, one.stats) for one in written
        ]
        actions += [RemoveAction(file.path, changes, now_ms, file.size_bytes, {}) for file in removed]
        for _ in range(_TRIES):
            self.refresh()
            after = result()
            seen, notes = self.version, self.notes() | {number: note_of(files) for number, files in after.items()}
            properties = CommitProperties(
                custom_metadata=in_commit(notes),
                app_transactions=[
                    Transaction(self.identity.transaction(number), files.end) for number, files in after.items()
                ],
            )
            with contextlib.suppress(CommitFailedError):
                self._delta.create_write_transaction(actions, "append", TABLE_SCHEMA, commit_properties=properties)
                break
        else:
            raise StaleArchive(f"The table in {self.place} changes too often to commit to it.")
        self._delta.update_incremental()
        self._look()
        if self.version == seen + 1:
            self._noted = (self.version, notes)
        if self.version % SHORTEN_EVERY == 0:
            shorten_log(self.place, self.version)

    def _continued(self, added: Mapping[int, Coverage]) -> dict[int, Coverage]:
        """The partitions with files behind those that they have."""
        after: dict[int, Coverage] = {}
        for number, new in added.items():
            position = self.position(number)
            if new.start != position or new.missing() or new.doubled():
                raise StaleArchive(f"Partition {number} is at {position}, not {new.start}.")
            before = self.coverage.get(number, _NO_ROWS)
            after[number] = Coverage([*before.files, *new.files])
        return after

    def _replaced(self, files: Sequence[RangeFile], written: Sequence[Written]) -> dict[int, Coverage]:
        """The partitions with other files in the place of some; the others must be those that were noted."""
        gone, notes = {file.path for file in files}, self.notes()
        after: dict[int, Coverage] = {}
        for number in {file.partition for file in files}:
            before = self.coverage.get(number, _NO_ROWS)
            if not {file.path for file in files if file.partition == number} <= {file.path for file in before.files}:
                raise StaleArchive(f"Files of partition {number} were replaced by somebody else.")
            if before.missing() or before.doubled() or notes.get(number) != note_of(before):
                raise TableRefused(f"{self.place} does not hold what was archived of partition {number}: see verify.")
            new = [one.file for one in written if one.file.partition == number]
            kept = [file for file in before.files if file.path not in gone]
            after[number] = Coverage(sorted([*kept, *new]))
        return after


def read_identity(place: Place, delta: DeltaTable) -> tuple[Identity, dict[int, int]]:
    """Whose table it is and where its partitions began; refused if it is not one that Headrace reads."""
    properties = delta.metadata().configuration
    try:
        identity = Identity(properties[CLUSTER], properties[TOPIC], bytes.fromhex(properties[TOPIC_ID]))
        starts = {int(partition): start for partition, start in json.loads(properties[STARTS]).items()}
    except (KeyError, ValueError):
        raise TableRefused(f"{place} is a Delta table of somebody else. Move it away or use another --lake.") from None
    if _TRANSACTION_RETENTION in properties:
        raise TableRefused(
            f"{place} has {_TRANSACTION_RETENTION}, which lets Delta forget the archive's position. Unset the property."
        )
    if delta.protocol().min_reader_version > 1:
        raise TableRefused(
            f"{place} needs reader version {delta.protocol().min_reader_version} of Delta: a feature such as deletion "
            "vectors or column mapping was switched on, which Headrace does not read. Drop that feature."
        )
    return identity, starts


def check_files(place: Place, files: Sequence[RangeFile]) -> None:
    """Raises where a file is not at its place with its size."""
    for file, found in zip(files, place.sizes([file.path for file in files]), strict=True):
        if found is None:
            raise FileAway(
                f"{place / file.path} was written by a task and is not there: --lake must be a place that the driver "
                "and all executors share."
            )
        if found != file.size_bytes:
            raise FileAway(f"{place / file.path} has {found} bytes, not the {file.size_bytes} that were written.")
