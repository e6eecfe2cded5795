"""Compaction: merges adjacent small files of a partition, with the same rows in the same order.

The choice of files is made here without I/O. The archive merges continuously, like a log-structured merge tree: ten
files of one size make one of the next, so a row is written a handful of times however long the table lives, and a
partition always has few files. `headrace lake compact` merges everything smaller than the target at once.

A merge reads every row and compares each file with the digest in its name, so changed data is never copied under a new
name. Replaced files stay on disk until `vacuum`, for readers that still use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow.parquet as pq

from headrace.lake.records.digest import RowDigest
from headrace.lake.storage.place import Place
from headrace.lake.table.delta_log import Written
from headrace.lake.table.names import RangeFile
from headrace.lake.table.parquet_file import RangeWriter
from headrace.lake.table.snapshot import Coverage, StaleArchive, TableRefused
from headrace.lake.table.table import TopicTable

TARGET_BYTES = 128 * 1024 * 1024
FAN_IN = 10
_SMALLEST_TIER_BYTES = 256 * 1024


class MergePlan(msgspec.Struct, frozen=True):
    """Adjacent files of one partition to merge."""

    table: Place
    files: Sequence[RangeFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Damaged(TableRefused):
    """A file does not match its name: unverified data is never merged."""


def plan_merges(table: TopicTable, *, at_least: int = FAN_IN, target_bytes: int = TARGET_BYTES) -> list[MergePlan]:
    """What to merge now, at most one merge per partition; `at_least` 2 merges all adjacent small files."""
    if table.snapshot.foreign:
        return []
    plans = (first_merge(covered, at_least, target_bytes) for covered in table.coverage.values())
    return [MergePlan(table.place, files) for files in plans if files]


def first_merge(covered: Coverage, at_least: int, target_bytes: int) -> Sequence[RangeFile]:
    """The first files of a partition to merge; none if there are not enough of similar size."""
    for limit_bytes in _tiers(target_bytes // 2) if at_least > 2 else (target_bytes // 2,):
        for run in _runs(covered.files, limit_bytes, target_bytes):
            if len(run) >= at_least:
                return run
    return ()


def _tiers(largest_bytes: int) -> Iterator[int]:
    """Size limits of similar files, from small to large; files above half the target are not merged."""
    limit_bytes = _SMALLEST_TIER_BYTES
    while limit_bytes < largest_bytes:
        yield limit_bytes
        limit_bytes *= FAN_IN
    yield largest_bytes


def _runs(files: Sequence[RangeFile], limit_bytes: int, target_bytes: int) -> Iterator[list[RangeFile]]:
    """Runs of adjacent files below a size, up to the target size together. A gap stays a separate file."""
    run: list[RangeFile] = []
    size_bytes = 0
    for file in files:
        fits = not file.is_gap and file.size_bytes < limit_bytes
        if run and (not fits or file.start != run[-1].end or size_bytes + file.size_bytes > target_bytes):
            yield run
            run, size_bytes = [], 0
        if fits:
            run.append(file)
            size_bytes += file.size_bytes
    if run:
        yield run


def merge(plan: MergePlan) -> Written:
    """Writes the merged file, after every row of its parts was compared with what was archived."""
    writer = RangeWriter(plan.table, plan.files[0].partition, plan.files[0].start, to_stay=True)
    for file in plan.files:
        digest = RowDigest()
        with plan.table.open(file.path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as parquet:
            for group in range(parquet.num_row_groups):
                for rows in parquet.read_row_group(group).combine_chunks().to_batches():
                    digest.add(rows)
                    writer.add(rows)
        if (digest.rows, digest.hex()) != (file.rows, file.digest):
            raise Damaged(f"{plan.table / file.path} does not match what was archived: run `headrace lake verify`.")
    return writer.finish(plan.files[-1].end)


def compact_table(table: TopicTable, *, at_least: int = 2, target_bytes: int = TARGET_BYTES) -> tuple[int, int]:
    """Merges until nothing is left to merge; returns how many files became how many."""
    before = after = 0
    while plans := plan_merges(table, at_least=at_least, target_bytes=target_bytes):
        for plan in plans:
            written = merge(plan)
            try:
                table.replace(plan.files, [written], same_rows=True)
            except StaleArchive:
                # An archive compacts the same table: its result is as good.
                table.refresh()
                continue
            before, after = before + len(plan.files), after + 1
    return before, after
