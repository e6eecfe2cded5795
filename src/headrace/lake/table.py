"""A topic's Delta table: whose it is, how far it goes, and the one way rows get into it.

The table is the only position. Each commit carries one application transaction per partition whose version is the next
offset, so of two archives that planned from the same snapshot one commits and the other is refused. What the table
holds is read from its live files alone: after a restore a transaction still says the old offset, and Delta accepts a
commit that names a file which is not there. So a commit first sees every file at its place with its size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from headrace.lake.digest import chained
from headrace.lake.files import Coverage, RangeFile, coverage_by_partition, read_name
from headrace.lake.place import Place
from headrace.lake.rows import TABLE_SCHEMA

CLUSTER, TOPIC, TOPIC_ID, STARTS = "headrace.cluster.id", "headrace.topic", "headrace.topic.id", "headrace.starts"
NOTE = "headrace"
"""The key of our note in a commit: per partition the running count and digest."""

_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_NO_ROWS = Coverage([])


class TableRefused(ValueError):
    """This table must not be written to, or cannot be read, and what to do about it."""


class StaleArchive(Exception):
    """Another archive has committed since this one looked: what was planned is void."""


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
            raise TableRefused(f"There is no Delta table in {place}.") from None
        self.identity, self._starts = read_identity(place, self._delta)
        self.coverage: dict[int, Coverage] = {}
        self.foreign: list[str] = []
        self._look()

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def created_ms(self) -> int:
        return self._delta.metadata().created_time

    def refresh(self) -> None:
        """Looks at what others, or we, committed since."""
        self._delta.update_incremental()
        self._look()

    def _look(self) -> None:
        actions = pa.table(self._delta.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        listed = [(path, read_name(path, size)) for path, size in zip(*actions.to_pydict().values(), strict=True)]
        self.foreign = sorted(path for path, file in listed if file is None)
        self.coverage = coverage_by_partition(file for _, file in listed if file is not None)

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

    def notes(self) -> dict[int, dict[str, Any]]:
        """Per partition the running count and digest as the newest commit with that partition noted them."""
        found: dict[int, dict[str, Any]] = {}
        for commit in self._delta.history():
            for partition, note in commit.get(NOTE, {}).items():
                found.setdefault(int(partition), note)
        return found

    # Writing

    def commit(self, written: Sequence[Written]) -> None:
        """Adds these files, of ranges that continue what is there, or raises and adds nothing."""
        files = [one.file for one in written]
        check_files(self.place, files)
        self._check_still_ours()
        properties = CommitProperties(
            custom_metadata={NOTE: self._note(files)},
            app_transactions=[
                Transaction(self.identity.transaction(partition), covered.end)
                for partition, covered in coverage_by_partition(files).items()
            ],
        )
        now_ms = time.time_ns() // 1_000_000
        actions = [AddAction(one.file.path, one.file.size_bytes, {}, now_ms, True, one.stats) for one in written]
        try:
            self._delta.create_write_transaction([*actions], "append", TABLE_SCHEMA, commit_properties=properties)
        except CommitFailedError as error:
            raise StaleArchive(str(error)) from error
        self.refresh()

    def _note(self, files: Sequence[RangeFile]) -> dict[str, dict[str, int | str]]:
        note: dict[str, dict[str, int | str]] = {}
        for partition, added in coverage_by_partition(files).items():
            before = self.coverage.get(partition, _NO_ROWS)
            if added.start != self.position(partition) or added.missing() or added.doubled():
                raise StaleArchive(f"Partition {partition} is at {self.position(partition)}, not {added.start}.")
            chain = before.chain
            for file in added.files:
                chain = chained(chain, file.start, file.end, file.rows, file.digest)
            note[str(partition)] = {"end": added.end, "rows": before.rows + added.rows, "digest": chain}
        return note

    def _check_still_ours(self) -> None:
        """A topic that was deleted and made again has another table here by now."""
        try:
            found, _ = read_identity(self.place, self.place.delta())
        except TableNotFoundError:
            raise StaleArchive(f"The table in {self.place} is gone.") from None
        if found != self.identity:
            raise StaleArchive(f"The table in {self.place} belongs to another topic by now.")


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
