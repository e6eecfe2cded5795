"""A table's Delta log: only existing files are committed, and the log stays short.

Delta accepts a commit that names a missing file. So each file is first checked for existence and size, and files of a
commit that was not made are removed.

Each commit carries notes about all partitions, so that the files can be verified later without the topic: where a
partition's files begin and end, how many rows they have, and the running digest over them. Notes of partitions that a
commit does not change are copied unchanged. So the newest notes are enough, and older commits may be deleted.

The cost of a commit does not grow with their number. Each one lists the log and reads it from the last checkpoint.
Checkpoints every few commits bound the reading, and deleting old entries bounds the listing. Delta's own clean-up goes
by time, which bounds nothing for a table with a commit every second. Deleted entries are older than a checkpoint that
stays, so every reader less than `ENTRIES_KEPT` commits behind finds what it needs; time travel reaches as far.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from headrace.lake.storage.place import PENDING, Place
from headrace.lake.table.names import RangeFile
from headrace.lake.table.snapshot import Coverage

CHECKPOINT_EVERY = 10
"""Commits between checkpoints."""

ENTRIES_KEPT = 1000
"""Minimum commits kept in the log."""

SHORTEN_EVERY = 100
"""Commits between two clean-ups."""

NOTE = "headrace"
"""The key of our notes in a commit."""

_LOOK_BACK = (1, 20, None)
"""Commits to search for the newest notes: others may have committed since (a RESTORE, a VACUUM)."""

LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.(?:.*\.)?(?:json|crc|parquet)")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class FileAway(OSError):
    """The driver cannot find a file that a task wrote."""


class Written(msgspec.Struct, frozen=True):
    """A file to be committed, with statistics for pruning."""

    file: RangeFile
    stats: str


def log_actions(
    removed: Sequence[RangeFile], written: Sequence[Written], *, same_rows: bool
) -> list[AddAction | RemoveAction]:
    """A commit's entries in the log; `same_rows`: readers of the change feed can ignore it."""
    now_ms, changes = time.time_ns() // 1_000_000, not same_rows
    actions: list[AddAction | RemoveAction] = [
        AddAction(one.file.path, one.file.size_bytes, {}, now_ms, changes, one.stats) for one in written
    ]
    return actions + [RemoveAction(file.path, changes, now_ms, file.size_bytes, {}) for file in removed]


def settle_files(place: Place, written: Sequence[Written]) -> None:
    """Gives files their final names just before the commit; raises if one is missing or has another size."""
    files = [one.file for one in written]
    place.settle([file.path for file in files])
    for file, found in zip(files, place.sizes([file.path for file in files]), strict=True):
        if found is None:
            raise FileAway(
                f"{place / file.path} was written by a task and does not exist here: --lake must be shared by the "
                "driver and all executors."
            )
        if found != file.size_bytes:
            raise FileAway(f"{place / file.path} has {found} bytes, not the {file.size_bytes} that were written.")


def take_back(place: Place, written: Sequence[Written], live: Container[str]) -> None:
    """Removes files of a failed commit, on a disk only, where that is certain: they might be what filled it."""
    if place.is_local:
        for path in (one.file.path for one in written if one.file.path not in live):
            for name in (path, path + PENDING):
                with contextlib.suppress(FileNotFoundError):
                    place.delete(name)


# Notes


class Note(msgspec.Struct, frozen=True):
    """A partition after a commit. Rows before `start`, if any, were expired."""

    start: int
    end: int
    rows: int
    digest: str


def note_of(covered: Coverage) -> Note:
    """The note for a partition with these files."""
    return Note(covered.start, covered.end, covered.rows, covered.chain)


def newest_notes(delta: DeltaTable) -> dict[int, Note]:
    """The notes of our newest commit, by partition."""
    for most in _LOOK_BACK:
        for commit in delta.history(most):
            if NOTE in commit:
                return {int(number): msgspec.convert(note, Note) for number, note in commit[NOTE].items()}
    return {}


def in_commit(notes: Mapping[int, Note]) -> dict[str, Any]:
    """The notes in a commit's form."""
    return {NOTE: {str(number): msgspec.to_builtins(note) for number, note in sorted(notes.items())}}


# Its length


def shorten_log(table: Place, version: int) -> int:
    """Deletes log entries that nobody needs any more; returns how many."""
    names = [file.path.rpartition("/")[2] for file in table.files(LOG)]
    checkpoints = [int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))]
    kept_from = max((at for at in checkpoints if at <= version - ENTRIES_KEPT), default=0)
    gone = [name for name in names if (found := _ENTRY.fullmatch(name)) and int(found[1]) < kept_from]
    for name in sorted(gone):
        with contextlib.suppress(FileNotFoundError):  # another archive does the same
            table.delete(f"{LOG}/{name}")
    return len(gone)
