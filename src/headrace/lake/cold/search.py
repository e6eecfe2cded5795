"""Cold records by time: the record, or file, for a timestamp.

Producers set timestamps, so neither files nor rows are ordered by them. Statistics only exclude: Delta's files,
Parquet's row groups; the rest is read, two columns of it. Everything here blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.lake.cold.frames import AskRetained
from headrace.lake.cold.row_groups import FileCache, OpenFile, RowGroup
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import Snapshot

_NEVER_RULED_OUT = (1 << 63) - 1


class TimeSearch:
    """Searches the records of [first, stop), which a snapshot covers, by time."""

    def __init__(self, files: FileCache, snapshot: Snapshot, partition: int, first: int, stop: int) -> None:
        self._files, self._snapshot = files, snapshot
        self._covered = [file for file in snapshot.of(partition).span(first, stop) if file.rows]
        self._first, self._stop = first, stop

    def at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record at or after a time."""
        for file in self._covered:
            if self._bound(file) < timestamp:
                continue
            for opened, group in self._groups(file):
                if _group_bound(group) < timestamp:
                    continue
                offsets, times = opened.times(group, self._first, self._stop)
                late = np.flatnonzero(times >= timestamp)
                if len(late):
                    return int(offsets[late[0]]), int(times[late[0]])
        return None

    def newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the highest timestamp."""
        best: tuple[int, int] | None = None
        # Files that may have the highest come first: usually one is opened. Of equal records the first counts.
        for file in sorted(self._covered, key=lambda file: (-self._bound(file), file.start)):
            if best is not None and not _may_beat(self._bound(file), file.start, best):
                break
            groups = sorted(self._groups(file), key=lambda at: (-_group_bound(at[1]), at[1].first))
            for opened, group in groups:
                if best is not None and not _may_beat(_group_bound(group), group.first, best):
                    continue
                offsets, times = opened.times(group, self._first, self._stop)
                if len(times):
                    index = int(np.argmax(times))
                    found = int(offsets[index]), int(times[index])
                    if best is None or _may_beat(found[1], found[0], best):
                        best = found
        return best

    def _bound(self, file: RangeFile) -> int:
        return self._snapshot.newest_ms.get(file.path, _NEVER_RULED_OUT)

    def _groups(self, file: RangeFile) -> Iterator[tuple[OpenFile, RowGroup]]:
        opened = self._files.open(self._snapshot.place, file)
        for group in opened.groups:
            if group.last >= self._first and group.first < self._stop:
                yield opened, group


def retained_start(snapshot: Snapshot, ask: AskRetained) -> int:
    """The end of the leading files that are entirely too old, or beyond the retained size."""
    covered, ages_ms = snapshot.of(ask.partition.number).span(ask.first, ask.stop), snapshot.ages_ms
    start, oldest_ms = ask.first, ask.oldest_ms
    behind_bytes = sum(file.size_bytes for file in covered)
    for file in covered:
        behind_bytes -= file.size_bytes
        is_old = oldest_ms is not None and (not file.rows or ages_ms.get(file.path, oldest_ms) < oldest_ms)
        is_beyond = ask.most_bytes is not None and behind_bytes >= ask.most_bytes
        if file.end > ask.stop or not (is_old or is_beyond):
            break
        start = file.end
    return max(ask.first, start)


def _group_bound(group: RowGroup) -> int:
    return _NEVER_RULED_OUT if group.newest_ms is None else group.newest_ms


def _may_beat(timestamp: int, offset: int, best: tuple[int, int]) -> bool:
    return timestamp > best[1] or (timestamp == best[1] and offset < best[0])
