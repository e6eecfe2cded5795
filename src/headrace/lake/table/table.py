"""A topic's Delta table: its identity, its position, and commits.

The position is stored only in the table. Each commit carries one application transaction per partition whose version
is the next offset, so of two archives that planned from the same snapshot one commits and the other is refused. The
table's content is determined by its live files alone: after a restore a transaction still has the old offset, and
Delta accepts a commit that names a missing file. So every file's existence and size are checked before a commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.records.table_schema import TABLE_SCHEMA
from headrace.lake.storage.place import Place
from headrace.lake.table.delta_log import (
    SHORTEN_EVERY,
    Note,
    Written,
    in_commit,
    log_actions,
    newest_notes,
    note_of,
    settle_files,
    shorten_log,
    take_back,
)
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import (
    Coverage,
    Identity,
    NoTable,
    Snapshot,
    StaleArchive,
    TableRefused,
    coverage_by_partition,
)

_TRIES = 20
"""Attempts of a commit: an archive, a compaction and an expiry rarely commit at the same time."""


class LastCommit(msgspec.Struct, frozen=True):
    """Time and version of the last commit."""

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
        self.snapshot = Snapshot.take(place, self._delta)
        self._noted: tuple[int, dict[int, Note]] | None = None

    @property
    def identity(self) -> Identity:
        return self.snapshot.identity

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def coverage(self) -> dict[int, Coverage]:
        """The coverage of the live files, by partition."""
        return self.snapshot.coverage

    @property
    def created_ms(self) -> int:
        return self._delta.metadata().created_time

    def of(self, partition: int) -> Coverage:
        """The coverage of a partition's live files."""
        return self.snapshot.of(partition)

    def position(self, partition: int) -> int:
        """The next offset to archive."""
        return self.snapshot.position(partition)

    def refresh(self) -> None:
        """Takes in all commits since; `StaleArchive` if the table no longer belongs to this topic."""
        # Reopened, because a handle gets slower with every update, and does not notice that a topic was recreated, and
        # its table with it.
        delta = self.snapshot.reopen()
        self._delta, self.snapshot = delta, Snapshot.take(self.place, delta, self.snapshot)

    # What its commits say

    def transaction_version(self, partition: int) -> int | None:
        """The next offset according to the last commit, which a restore does not revert."""
        return self._delta.transaction_version(self.identity.transaction(partition))

    def last_commit(self) -> LastCommit:
        return LastCommit(self.version, self._delta.history(1)[0]["timestamp"])

    def notes(self) -> dict[int, Note]:
        """The notes of our newest commit, by partition."""
        if self._noted is None or self._noted[0] != self.version:
            self._noted = (self.version, newest_notes(self._delta))
        return self._noted[1]

    # Writing

    def commit(self, written: Sequence[Written]) -> None:
        """Adds files whose ranges continue the table, or raises and adds nothing."""
        added = coverage_by_partition(one.file for one in written)
        self._transact([], written, lambda: self._continued(added))

    def replace(self, files: Sequence[RangeFile], written: Sequence[Written], *, same_rows: bool) -> None:
        """Replaces live files by others with the same or fewer rows; raises if they are not live."""
        self._transact(files, written, lambda: self._replaced(files, written), same_rows=same_rows)

    def _transact(
        self,
        removed: Sequence[RangeFile],
        written: Sequence[Written],
        result: Callable[[], dict[int, Coverage]],
        *,
        same_rows: bool = False,
    ) -> None:
        """Commits what `result` makes of the partitions; retried if the table has changed."""
        actions = log_actions(removed, written, same_rows=same_rows)
        try:
            seen, notes = self._try_to_commit(actions, written, result)
        except Exception:
            with contextlib.suppress(Exception):
                self.refresh()
                take_back(self.place, written, self.snapshot.named)
            raise
        self.snapshot = self.snapshot.update(self._delta)
        if self.version == seen + 1:
            self._noted = (self.version, notes)
        if self.version % SHORTEN_EVERY == 0:
            shorten_log(self.place, self.version)

    def _try_to_commit(
        self,
        actions: list[AddAction | RemoveAction],
        written: Sequence[Written],
        result: Callable[[], dict[int, Coverage]],
    ) -> tuple[int, dict[int, Note]]:
        """Commits, with retries if others were faster; returns the version before it, and its notes."""
        for attempt in range(_TRIES):
            self.refresh()
            after = result()
            if not attempt:
                settle_files(self.place, written)
            seen, notes = self.version, self.notes() | {number: note_of(covered) for number, covered in after.items()}
            properties = CommitProperties(
                custom_metadata=in_commit(notes),
                app_transactions=[
                    Transaction(self.identity.transaction(number), covered.end) for number, covered in after.items()
                ],
            )
            with contextlib.suppress(CommitFailedError):
                self._delta.create_write_transaction(actions, "append", TABLE_SCHEMA, commit_properties=properties)
                return seen, notes
        raise StaleArchive(f"The table in {self.place} changes too often to commit.")

    def _continued(self, added: Mapping[int, Coverage]) -> dict[int, Coverage]:
        """The partitions with files appended."""
        after: dict[int, Coverage] = {}
        for number, new in added.items():
            position = self.position(number)
            if new.start != position or new.missing() or new.doubled():
                raise StaleArchive(f"Partition {number} is at {position}, not {new.start}.")
            before = self.of(number)
            after[number] = Coverage([*before.files, *new.files])
        return after

    def _replaced(self, files: Sequence[RangeFile], written: Sequence[Written]) -> dict[int, Coverage]:
        """The partitions with some files replaced; the old ones must match the notes."""
        gone, notes = {file.path for file in files}, self.notes()
        after: dict[int, Coverage] = {}
        for number in {file.partition for file in files}:
            before = self.of(number)
            if not {file.path for file in files if file.partition == number} <= {file.path for file in before.files}:
                raise StaleArchive(f"Files of partition {number} were replaced by another writer.")
            if before.missing() or before.doubled() or notes.get(number) != note_of(before):
                raise TableRefused(f"{self.place} does not match what was archived of partition {number}: run verify.")
            new = [one.file for one in written if one.file.partition == number]
            kept = [file for file in before.files if file.path not in gone]
            after[number] = Coverage(sorted([*kept, *new]))
        return after
