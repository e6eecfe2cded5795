"""Reads Parquet files of a table one row group at a time, and encodes row groups as record batches.

The rule: nothing about a file is assumed. Its rows must be those that its name promises, of that partition, in that
range, in rising order of offsets; otherwise the result is `ColdAway`, never records in another order. Open files are
cached with their footers, so that the next row group costs one read. Reading blocks.

Encoded row groups are cached within a limit of bytes. Consumers read about a megabyte at a time of a row group that has
several, and several consumers may follow one another, so each is encoded once and concurrent readers share the work.
The least recently used are evicted.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.cold_log import ColdAway
from headrace.lake.cold.cpu_share import CpuShare
from headrace.lake.records import encode as encoding
from headrace.lake.records.encode import EncodedBatch, Int64s
from headrace.lake.storage.place import Place, reason
from headrace.lake.storage.s3 import open_bucket, open_object
from headrace.lake.table.names import RangeFile

OPEN_FILES = 64
"""Files kept open; a consumer that reads forward needs two at a time."""

KEPT_BYTES = 96 * 1024 * 1024
"""Limit for encoded batches. Four consumers, each with its current and its prefetched row groups, take 60 MB."""

_Key = tuple[str, int, int]


class RowGroup(msgspec.Struct, frozen=True):
    """A row group: its first and last offset, and its highest timestamp if the file has it."""

    index: int
    first: int
    last: int
    newest_ms: int | None


class OpenFile(msgspec.Struct, frozen=True):
    """A file with its footer."""

    name: str
    file: RangeFile
    source: Any
    metadata: pq.FileMetaData
    groups: Sequence[RowGroup]

    def read(self, group: RowGroup, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows of a row group, checked; `columns` must have `offset`."""
        with _readable(self.name):
            parquet = pq.ParquetFile(self.source, metadata=self.metadata, page_checksum_verification=True)
            rows = parquet.read_row_group(group.index, columns=list(columns), use_threads=False)
            batches = rows.combine_chunks().to_batches()
        if len(batches) != 1:
            raise ColdAway(f"{self.name}: row group {group.index} has no rows, or too many.")
        offsets = batches[0].column("offset").to_numpy()
        if offsets[0] != group.first or offsets[-1] != group.last or not (np.diff(offsets) > 0).all():
            raise unordered(self.name)
        if "partition" in columns and not pc.all(pc.equal(batches[0].column("partition"), self.file.partition)).as_py():
            raise ColdAway(f"{self.name} has rows of a partition that does not match its name.")
        return batches[0]

    def encode(self, group: RowGroup, stop: int) -> list[EncodedBatch]:
        """The rows of a row group below `stop`, as batches."""
        rows = self.read(group, encoding.COLUMNS)
        if stop <= group.last:
            rows = rows.slice(0, int(np.searchsorted(rows.column("offset").to_numpy(), stop)))
        return encoding.encode(rows)

    def times(self, group: RowGroup, first: int, stop: int) -> tuple[Int64s, Int64s]:
        """Offsets and timestamps of a row group's rows in [first, stop)."""
        rows = self.read(group, ["offset", "timestamp_ms"])
        offsets, times = rows.column("offset").to_numpy(), rows.column("timestamp_ms").to_numpy()
        begin, end = np.searchsorted(offsets, [first, stop])
        return offsets[begin:end], times[begin:end]


class FileCache:
    """A cache of open files."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, table: Place, file: RangeFile) -> OpenFile:
        """A file; FileNotFoundError if it is gone."""
        name = (table / file.path).uri
        with self._lock:
            if name in self._open:
                self._open.move_to_end(name)
                return self._open[name]
        with _readable(name):
            opened = _open(table, file)
        with self._lock:
            self._open[name] = opened
            while len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        return opened

    def forget(self) -> None:
        """Closes all, because files may be missing by now."""
        with self._lock:
            self._open.clear()


def _open(table: Place, file: RangeFile) -> OpenFile:
    name = (table / file.path).uri
    # Consumers of a bucket wait for it in parallel; with delta-rs's own files they would wait one after another.
    source = open_object(_bucket(table), file.path, file.size_bytes) if table.is_s3 else table.open(file.path)
    metadata = pq.read_metadata(source)
    if metadata.num_rows != file.rows:
        raise ColdAway(f"{name} has {metadata.num_rows} rows, not the {file.rows} of its name.")
    groups, end = [], file.start
    for index in range(metadata.num_row_groups):
        group = _row_group(name, source, metadata, index)
        if group.first < end or group.last < group.first:
            raise unordered(name)
        groups.append(group)
        end = group.last + 1
    if end > file.end:
        raise unordered(name)
    return OpenFile(name, file, source, metadata, groups)


@functools.lru_cache(maxsize=1024)
def _bucket(table: Place) -> Any:
    return open_bucket(table)


def _row_group(name: str, source: Any, metadata: pq.FileMetaData, index: int) -> RowGroup:
    """A row group described by its statistics or, without any, by its rows."""
    found: dict[str, Any] = {}
    described = metadata.row_group(index)
    for at in range(described.num_columns):
        column = described.column(at)
        if column.path_in_schema in ("offset", "timestamp_ms"):
            found[column.path_in_schema] = column.statistics
    bounds, times = found.get("offset"), found.get("timestamp_ms")
    newest_ms = times.max if times is not None and times.has_min_max else None
    if bounds is not None and bounds.has_min_max:
        return RowGroup(index, bounds.min, bounds.max, newest_ms)
    rows = pq.ParquetFile(source, metadata=metadata).read_row_group(index, columns=["offset"])
    if rows.num_rows == 0:
        raise unordered(name)
    return RowGroup(index, pc.min(rows["offset"]).as_py(), pc.max(rows["offset"]).as_py(), newest_ms)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turns errors into `ColdAway`, except a missing file, which a newer snapshot may not name any more."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ColdAway(f"{name} cannot be read: {reason(error)}") from None


def unordered(name: str) -> ColdAway:
    """The error for a file that the archive did not write."""
    return ColdAway(f"{name} is not in offset order, or its offsets do not match its name.")


# Encoded


class Piece(msgspec.Struct, frozen=True):
    """The encoded batches of a row group, or of its rows below an offset."""

    batches: Sequence[EncodedBatch]
    size_bytes: int

    def from_offset(self, offset: int) -> Sequence[EncodedBatch]:
        """The batches from the one with an offset, or the next after it."""
        return self.batches[bisect.bisect_left(self.batches, offset, key=lambda batch: batch.last) :]


class PieceCache:
    """Cached pieces, and those being encoded."""

    def __init__(self, executor: Executor, share: CpuShare, kept_bytes: int = KEPT_BYTES) -> None:
        self._executor, self._share, self._most_bytes = executor, share, kept_bytes
        self._kept: OrderedDict[_Key, Piece] = OrderedDict()
        self._making: dict[_Key, asyncio.Task[Piece]] = {}
        self.size_bytes = 0

    async def get(self, opened: OpenFile, group: RowGroup, stop: int) -> Piece:
        """The rows of a row group below `stop`. A caller that stops waiting does not cancel the work."""
        key = (opened.name, group.index, min(stop, group.last + 1))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._making:
            making = self._making[key] = asyncio.create_task(self._make(key, opened, group))
            making.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(self._making[key])

    async def _make(self, key: _Key, opened: OpenFile, group: RowGroup) -> Piece:
        loop = asyncio.get_running_loop()
        async with self._share.turn():
            batches = await loop.run_in_executor(self._executor, opened.encode, group, key[2])
        return Piece(batches, sum(len(batch.content) for batch in batches))

    def _made(self, key: _Key, done: asyncio.Task[Piece]) -> None:
        del self._making[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._kept[key] = done.result()
        self.size_bytes += done.result().size_bytes
        # The newest stays, however large: its reader will come back for the rest.
        while self.size_bytes > self._most_bytes and len(self._kept) > 1:
            _, given_up = self._kept.popitem(last=False)
            self.size_bytes -= given_up.size_bytes
