"""Verifies that table and topic agree, or finds where they differ.

Cold rows are verified without the topic: each file's rows against the count and digest in its name, the files of a
partition against the running count and digest of the last commit. So a changed byte, a missing row or an extra row is
found even in data that the topic no longer has. Records still in the topic are read and compared, too.

It uses plain pyarrow, one row group at a time: no Spark, and memory for one row group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from headrace.client import Admin, Cluster
from headrace.cold_log import TableProof
from headrace.lake.archive.plan import CLEANUP, FORMAT, hot_ranges, is_dense
from headrace.lake.archive.task import NothingSkipped, holes_in, table_rows_of
from headrace.lake.fetching import OffsetRange, Portion, fetch_range
from headrace.lake.records.difference import COMPARED, first_difference
from headrace.lake.records.digest import RowDigest
from headrace.lake.storage.place import Place, reason
from headrace.lake.table.catalogue import OnElsewhere, OnRefused, tables_in
from headrace.lake.table.delta_log import Note, note_of
from headrace.lake.table.names import RangeFile
from headrace.lake.table.proofs import save_proof
from headrace.lake.table.snapshot import Coverage
from headrace.lake.table.table import TopicTable
from headrace.wire.errors import ErrorCode, KafkaError


class Finding(msgspec.Struct, frozen=True):
    """A difference from what was archived, and its location."""

    topic: str
    partition: int | None
    offset: int | None
    path: str | None
    what: str


class Proof(msgspec.Struct):
    """What was checked, and what was found wrong."""

    topics: int = 0
    files: int = 0
    rows: int = 0
    rows_compared: int = 0
    """Rows compared with records still in the topic."""
    findings: list[Finding] = []


def verify_lake(
    lake: Place,
    cluster: Cluster | None,
    topics: Sequence[str] = (),
    progress: Callable[[Proof], None] = lambda proof: None,
    refused: OnRefused | None = None,
    elsewhere: OnElsewhere = lambda topic, cluster_id: None,
) -> Proof:
    """Verifies every table, or those of these topics; without a cluster, only the tables."""
    proof = Proof()
    for table in tables_in(lake, topics, refused):
        proof.topics += 1
        before = proof.files, proof.rows, len(proof.findings)
        try:
            _Verification(table, cluster, proof, progress).run()
            if cluster is not None and table.identity.cluster_id != cluster.cluster_id:
                elsewhere(table.identity.topic, table.identity.cluster_id)
            save_proof(table.place, _since(proof, *before))
        except (DeltaError, OSError, pa.ArrowException) as error:
            if refused is None or isinstance(error, ConnectionError):
                raise
            refused(table.identity.topic, error)
    return proof


def _since(proof: Proof, files: int, rows: int, findings: int) -> TableProof:
    """The part of a proof added since."""
    now_ms = time.time_ns() // 1_000_000
    return TableProof(now_ms, proof.files - files, proof.rows - rows, len(proof.findings) - findings)


class _Verification:
    """The proof of one table."""

    def __init__(
        self, table: TopicTable, cluster: Cluster | None, proof: Proof, progress: Callable[[Proof], None]
    ) -> None:
        self._table, self._proof, self._progress = table, proof, progress
        self._topic = table.identity.topic
        self._cluster = cluster if cluster is not None and self._is_live(cluster) else None

    def _is_live(self, cluster: Cluster) -> bool:
        """Whether the topic is still there: one of the same name with another id is another topic."""
        ids = {topic.name: topic.topic_id for topic in Admin(cluster).list_topics()}
        return ids.get(self._topic) == self._table.identity.topic_id

    def run(self) -> None:
        notes = self._table.notes()
        for partition in sorted(set(notes) | set(self._table.coverage)):
            covered = self._table.of(partition)
            self._check_ranges(partition, covered)
            self._check_note(partition, covered, notes.get(partition))
            hot = hot_ranges(self._cluster, self._topic, [partition])[partition] if self._cluster else (0, 0)
            for file in covered.files:
                self._check_file(file, hot)
                self._progress(self._proof)
        for path in self._table.snapshot.foreign:
            self._check_foreign(path)

    # Files as a whole

    def _check_ranges(self, partition: int, covered: Coverage) -> None:
        for start, end in covered.missing():
            self._found(f"no file has offsets {start} to {end - 1}", partition, start)
        for start, end in covered.doubled():
            self._found(f"two files have offsets {start} to {end - 1}", partition, start)

    def _check_note(self, partition: int, covered: Coverage, note: Note | None) -> None:
        if note is None:
            self._found("no commit of the archive has this partition", partition)
            return
        held = note_of(covered) if covered.files else Note(note.start, note.start, 0, "")
        if held.start != note.start:
            self._found(
                f"its files begin at {held.start}, but the archive began at {note.start}", partition, note.start
            )
        elif (held.rows, held.end) != (note.rows, note.end):
            self._found(
                f"its files hold {held.rows} rows up to offset {held.end}; the archive wrote {note.rows} up to "
                f"{note.end}", partition, min(held.end, note.end),
            )  # fmt: skip
        elif held.digest != note.digest:
            self._found("its files are not those that the archive wrote", partition)

    def _check_foreign(self, path: str) -> None:
        """Rows that somebody else added to the table, or used to replace others."""
        try:
            with self._table.place.open(path) as file:
                held = pq.read_table(file, columns=["partition", "offset"])
        except (OSError, pa.ArrowException) as error:
            self._found(f"the archive did not write this file, which cannot be read: {reason(error)}", path=path)
            return
        for partition in sorted(pc.unique(held["partition"]).to_pylist()):
            offsets = held.filter(pc.equal(held["partition"], partition))["offset"]
            low, high = pc.min_max(offsets).values()
            covered = self._table.of(partition)
            twice = any(file.start <= low.as_py() < file.end for file in covered.files)
            what = "rows that the table already has" if twice else "rows that replace others"
            self._found(
                f"the archive did not write this file, which has {len(offsets)} {what} (offsets {low} to {high})",
                partition, low.as_py(), path,
            )  # fmt: skip

    # Rows

    def _check_file(self, file: RangeFile, hot: tuple[int, int]) -> None:
        self._proof.files += 1
        digest, last, wrong = RowDigest(), file.start - 1, False
        try:
            for rows in self._rows(file):
                offsets = rows.column("offset")
                for problem, at in _disorder(offsets, last, file.end):
                    wrong = True
                    self._found(problem, file.partition, at, file.path)
                if pc.any(pc.not_equal(rows.column("partition"), file.partition)).as_py():
                    wrong = True
                    self._found("rows of another partition are in this file", file.partition, None, file.path)
                last = offsets[-1].as_py()
                digest.add(rows)
        except (OSError, pa.ArrowException) as error:
            self._found(f"the file cannot be read: {reason(error)}", file.partition, file.start, file.path)
            return
        self._proof.rows += digest.rows
        if file.is_gap:
            return
        same = digest.hex() == file.digest
        compared = self._compare(file, hot)
        if not same and not wrong and not compared:
            missing = f"{file.rows - digest.rows:+d} rows" if digest.rows != file.rows else "other content"
            what = f"offsets {file.start} to {file.end - 1} are not what was archived ({missing})"
            self._found(what, file.partition, file.start, file.path)

    def _rows(self, file: RangeFile) -> Iterator[pa.RecordBatch]:
        place = self._table.place
        (size,) = place.sizes([file.path])
        if size is not None and size != file.size_bytes:
            self._found(f"the file has {size} bytes, not {file.size_bytes}", file.partition, file.start, file.path)
        with place.open(file.path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as parquet:
            for rows in parquet.iter_batches():
                if rows.num_rows:
                    yield rows

    def _compare(self, file: RangeFile, hot: tuple[int, int]) -> bool:
        """Compares a file's range with what the topic still has of it; whether that found a difference."""
        start, end = max(file.start, hot[0]), min(file.end, hot[1])
        if self._cluster is None or start >= end:
            return False
        wanted = OffsetRange(self._topic, file.partition, start, end)
        archived, live = RowDigest(), RowDigest()
        for rows in self._rows(file):
            offsets = rows.column("offset")
            archived.add(rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))))
        try:
            with self._portions(wanted) as portions:
                for rows in (rows for portion in portions for rows in table_rows_of(portion, wanted)):
                    live.add(rows)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return False  # the topic has deleted them meanwhile
        self._proof.rows_compared += live.rows
        if archived.hex() == live.hex():
            return False
        return self._locate(file, wanted)

    def _locate(self, file: RangeFile, wanted: OffsetRange) -> bool:
        """Finds the first row that differs between table and topic; whether there is one."""
        holes = self._holes(wanted)
        cold = (r for rows in self._rows(file) for r in _plain(rows) if wanted.start <= r["offset"] < wanted.stop)
        with self._portions(wanted) as portions:
            live = (row for portion in portions for rows in table_rows_of(portion, wanted) for row in _plain(rows))
            found = first_difference(live, cold, lambda offset: any(start <= offset < end for start, end in holes))
        if found is not None:
            self._found(found[1], file.partition, found[0], file.path)
        return found is not None

    def _holes(self, wanted: OffsetRange) -> list[tuple[int, int]]:
        """Where the topic may legitimately have fewer records than its table."""
        assert self._cluster is not None
        if not is_dense(Admin(self._cluster).describe_configs(wanted.topic, keys=[CLEANUP, FORMAT])):
            return [(wanted.start, wanted.stop)]
        with self._portions(wanted) as portions:
            return [hole for portion in portions for hole in holes_in(portion)]

    def _portions(self, wanted: OffsetRange) -> closing[Generator[Portion, None, None]]:
        """The topic's records in a range."""
        assert self._cluster is not None
        return closing(fetch_range(self._cluster, wanted, NothingSkipped()))

    def _found(
        self, what: str, partition: int | None = None, offset: int | None = None, path: str | None = None
    ) -> None:
        self._proof.findings.append(Finding(self._topic, partition, offset, path, what))


def _disorder(offsets: pa.Array, last: int, end: int) -> Iterator[tuple[str, int]]:
    """Reports offsets that do not rise strictly, or are outside the file's range."""
    numbers = np.concatenate(([last], offsets.to_numpy()))
    for at in np.flatnonzero(np.diff(numbers) <= 0):
        before, offset = int(numbers[at]), int(numbers[at + 1])
        yield ("the table has this row twice" if offset == before else f"this row comes after {before}"), offset
    if numbers[-1] >= end:
        yield "this row is outside its file's range", int(numbers[-1])


def _plain(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Normalises rows for comparison: no headers and null headers are equal."""
    return [row | {"headers": row["headers"] or []} for row in rows.select(COMPARED).to_pylist()]
