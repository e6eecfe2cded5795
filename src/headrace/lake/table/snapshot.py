"""A table at one moment: its identity, its live files, their coverage, and recorded gaps.

Shared by everything that reads tables: the archive, typed tables, cold reads, verification and replay. Rule kept here:
the content is what live files cover, by their names, in a table that names its topic. A snapshot never changes, so it
can be read while the next one is taken; taking the next one does not parse known names again.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headrace.lake.records.digest import NO_ROWS_CHAIN, chained
from headrace.lake.storage.place import Place
from headrace.lake.table.names import RangeFile, read_name

CLUSTER, TOPIC, TOPIC_ID, STARTS = "headrace.cluster.id", "headrace.topic", "headrace.topic.id", "headrace.starts"
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_OLDEST, _NEWEST, _WRITTEN = "min.timestamp_ms", "max.timestamp_ms", "modification_time"


class TableRefused(ValueError):
    """This table must not be written to, or cannot be read; says what to do."""


class NoTable(TableRefused):
    """There is no table, or not yet."""


class StaleArchive(Exception):
    """Somebody else has committed since: the plan is void."""


class Identity(msgspec.Struct, frozen=True):
    """The topic that a table belongs to. Names may be reused, ids are not."""

    cluster_id: str
    topic: str
    topic_id: bytes

    def transaction(self, partition: int) -> str:
        """The application id of a partition's transactions."""
        return f"headrace/{self.cluster_id}/{self.topic_id.hex()}/{partition}"


class Coverage(msgspec.Struct, frozen=True):
    """The live files of one partition, in offset order."""

    files: Sequence[RangeFile]

    # As a whole

    @property
    def start(self) -> int:
        return self.files[0].start

    @property
    def end(self) -> int:
        return self.files[-1].end

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def chain(self) -> str:
        """The running digest over all files."""
        chain = NO_ROWS_CHAIN
        for file in self.files:
            chain = chained(chain, file.start, file.end, file.rows, file.digest)
        return chain

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Accepted gaps: ranges lost before they were archived."""
        return [(file.start, file.end) for file in self.files if file.is_gap]

    def missing(self) -> list[tuple[int, int]]:
        """Ranges between the files that no file covers."""
        return [(one.end, other.start) for one, other in pairwise(self.files) if one.end < other.start]

    def doubled(self) -> list[tuple[int, int]]:
        """Ranges covered by two files."""
        return [(other.start, min(one.end, other.end)) for one, other in pairwise(self.files) if one.end > other.start]

    # By offset

    def at(self, offset: int) -> int | None:
        """The index of the file that covers an offset."""
        index = bisect.bisect_right(self.files, offset, key=lambda file: file.start) - 1
        return index if index >= 0 and offset < self.files[index].end else None

    def lacks(self, first: int, stop: int) -> int | None:
        """The first offset of [first, stop) that is not covered; None: all are."""
        index, position = self.at(first), first
        while index is not None and position < stop:
            position = self.files[index].end
            follows = index + 1 < len(self.files) and self.files[index + 1].start == position
            index = index + 1 if follows else None
        return position if position < stop else None

    def span(self, first: int, stop: int) -> Sequence[RangeFile]:
        """The files that cover [first, stop)."""
        begin, end = (self.at(first), self.at(stop - 1)) if first < stop else (None, None)
        return self.files[begin : end + 1] if begin is not None and end is not None else []

    def last_stretch(self) -> Sequence[RangeFile]:
        """The last files without a break between them."""
        first = len(self.files) - 1
        while first > 0 and self.files[first - 1].end == self.files[first].start:
            first -= 1
        return self.files[max(first, 0) :]


NO_FILES = Coverage([])


def coverage_by_partition(files: Iterable[RangeFile]) -> dict[int, Coverage]:
    """The files by partition, in offset order."""
    found: dict[int, list[RangeFile]] = {}
    for file in sorted(files):
        found.setdefault(file.partition, []).append(file)
    return {partition: Coverage(listed) for partition, listed in found.items()}


class Snapshot(msgspec.Struct, frozen=True, dict=True):
    """The live files of a table; `lost` are paths in the log whose files are unreadable."""

    place: Place
    version: int
    identity: Identity
    properties: Mapping[str, str]
    named: Mapping[str, RangeFile | None]
    """The files in the log, by path; None for a file that the archive did not write."""
    coverage: dict[int, Coverage]
    """Coverage by partition."""
    lost: frozenset[str]
    statistics: pa.Table

    @classmethod
    def take(cls, place: Place, delta: DeltaTable, before: Snapshot | None = None) -> Snapshot:
        """The snapshot of a newly opened table; refused if Headrace cannot read it."""
        identity, properties = _read_identity(place, delta)
        actions = pa.table(delta.get_add_actions(flatten=True))
        known = before.named if before is not None else {}
        named = {
            path: known[path] if path in known else read_name(path, size)
            for path, size in zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
        }
        kept = [name for name in ("path", _OLDEST, _NEWEST, _WRITTEN) if name in actions.column_names]
        coverage = coverage_by_partition(file for file in named.values() if file is not None)
        return cls(place, delta.version(), identity, properties, named, coverage, frozenset(), actions.select(kept))

    def update(self, delta: DeltaTable) -> Snapshot:
        """The next snapshot, from the same handle: fast, but does not notice a deleted or replaced table."""
        delta.update_incremental()
        if delta.version() == self.version:
            return self
        return Snapshot.take(self.place, delta, self).without(self.lost)

    def reopen(self) -> DeltaTable:
        """A fresh snapshot; `StaleArchive` if the table no longer belongs to this topic."""
        try:
            delta = self.place.delta()
        except TableNotFoundError:
            raise StaleArchive(f"The table in {self.place} is gone.") from None
        if _read_identity(self.place, delta)[0] != self.identity:
            raise StaleArchive(f"The table in {self.place} now belongs to another topic.")
        return delta

    # What is held

    def of(self, partition: int) -> Coverage:
        """The coverage of a partition."""
        return self.coverage.get(partition, NO_FILES)

    @cached_property
    def foreign(self) -> list[str]:
        """Paths of files that the archive did not write."""
        return sorted(path for path, file in self.named.items() if file is None)

    @cached_property
    def starts(self) -> dict[int, int]:
        """First offsets of the partitions that existed when the table was created."""
        return _starts(self.properties)

    def position(self, partition: int) -> int:
        """The next offset to archive: the end of the live files, or the start of the partition."""
        covered = self.of(partition)
        return covered.end if covered.files else self.starts.get(partition, 0)

    def find_lost(self) -> list[RangeFile]:
        """Live files that are missing or have another size, which the log does not show."""
        lost: list[RangeFile] = []
        for number, covered in self.coverage.items():
            sizes = {found.path: found.size_bytes for found in self.place.files(f"p{number}")}
            lost += [file for file in covered.files if sizes.get(file.path) != file.size_bytes]
        return lost

    def without(self, lost: Iterable[str]) -> Snapshot:
        """The same snapshot without unreadable files."""
        if not (gone := frozenset(lost)):
            return self
        held = (file for file in self.named.values() if file is not None and file.path not in gone)
        return msgspec.structs.replace(self, lost=gone, coverage=coverage_by_partition(held))

    # How old it is

    @cached_property
    def newest_ms(self) -> dict[str, int]:
        """The highest timestamp of each file, by path, if Delta has it."""
        if _NEWEST not in self.statistics.column_names:
            return {}
        found = zip(self.statistics["path"].to_pylist(), self.statistics[_NEWEST].to_pylist(), strict=True)
        return {path: at_ms for path, at_ms in found if at_ms is not None}

    @cached_property
    def ages_ms(self) -> dict[str, int]:
        """The time that retention uses, by path: the highest timestamp, or the file's own time if no record has one.

        As for such a segment in Kafka: by its records' timestamps it would be from 1969, and be deleted at once.
        """
        written = zip(self.statistics["path"].to_pylist(), self.statistics[_WRITTEN].to_pylist(), strict=True)
        written_ms = dict(written)
        return {path: at_ms if at_ms >= 0 else written_ms[path] for path, at_ms in self.newest_ms.items()}

    @property
    def oldest_ms(self) -> int | None:
        """The lowest timestamp, by statistics; None without rows."""
        if _OLDEST not in self.statistics.column_names:
            return None
        oldest: int | None = pc.min(self.statistics[_OLDEST]).as_py()
        return oldest


def _read_identity(place: Place, delta: DeltaTable) -> tuple[Identity, Mapping[str, str]]:
    """The table's identity and properties."""
    properties = delta.metadata().configuration
    try:
        identity = Identity(properties[CLUSTER], properties[TOPIC], bytes.fromhex(properties[TOPIC_ID]))
        _starts(properties)
    except (KeyError, ValueError):
        raise TableRefused(
            f"{place} is a Delta table that Headrace did not create. Move it away or use another --lake."
        ) from None
    if _TRANSACTION_RETENTION in properties:
        raise TableRefused(
            f"{place} has {_TRANSACTION_RETENTION}, which lets Delta forget the archive's position. Unset the property."
        )
    if delta.protocol().min_reader_version > 1:
        raise TableRefused(
            f"{place} needs reader version {delta.protocol().min_reader_version} of Delta: a feature such as deletion "
            "vectors or column mapping was switched on, which Headrace cannot read. Drop that feature."
        )
    return identity, properties


def _starts(properties: Mapping[str, str]) -> dict[int, int]:
    return {int(partition): start for partition, start in json.loads(properties[STARTS]).items()}
