"""The files of a table and their coverage, encoded in their names.

A name has the partition, the range of offsets that the file covers, its row count and their digest. So the list of
live files in a snapshot shows what is in the table, without trusting transactions, notes or statistics. A range may
have fewer records than offsets (control records, compaction, offsets that are times). An accepted gap is also a file,
without rows. Names are unique, so a file in flight belongs to one writer. Until its commit a file on a disk is pending
and has another name (`Place.put`): if it is removed before the commit, the commit fails, so leftovers of killed writers
can be deleted long before a day has passed.
"""

from __future__ import annotations

import bisect
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import pairwise

import msgspec

from headrace.lake.records.digest import NO_ROWS_CHAIN, chained

GAP = "gap"
_MARK_HEX = 8
_NAME = re.compile(r"p(\d+)/(\d{20})-(\d{20})-(\d+)-([0-9a-f]{32}|gap)-[0-9a-f]{16}\.parquet")


class RangeFile(msgspec.Struct, frozen=True, order=True):
    """A file and the range [start, end) of a partition that it covers."""

    partition: int
    start: int
    end: int
    rows: int
    digest: str
    path: str
    size_bytes: int = 0

    @property
    def is_gap(self) -> bool:
        return self.digest == GAP


_mark: ContextVar[str | None] = ContextVar("mark", default=None)


def new_mark() -> str:
    """A new mark, which is part of the names of one writer's files."""
    return secrets.token_hex(_MARK_HEX // 2)


def marked(mark: str, run: Callable[[bytes], bytes], content: bytes) -> bytes:
    """Runs a task whose files carry the mark, so that the leftovers of a failed run can be recognised."""
    token = _mark.set(mark)
    try:
        return run(content)
    finally:
        _mark.reset(token)


def has_mark(path: str, mark: str) -> bool:
    """Whether a file, pending or not, carries a mark."""
    return path.rpartition("-")[2].startswith(mark)


def name_file(partition: int, start: int, end: int, rows: int, digest: str) -> str:
    """A unique name, relative to the table."""
    unique = (_mark.get() or new_mark()) + secrets.token_hex(4)
    return f"p{partition}/{start:020}-{end:020}-{rows}-{digest}-{unique}.parquet"


def read_name(path: str, size_bytes: int = 0) -> RangeFile | None:
    """Parses a file's name; None for a file that the archive did not write."""
    match = _NAME.fullmatch(path)
    if match is None:
        return None
    partition, start, end, rows = (int(match[at]) for at in range(1, 5))
    return RangeFile(partition, start, end, rows, match[5], path, size_bytes)


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
