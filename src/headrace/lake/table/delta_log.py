"""What goes into a table's Delta log: files that are at their place, and not more entries than anybody needs.

Delta accepts a commit that names a file which is not there. So each file of a commit is first seen at its place with
its size, and what was written for a commit that was not made is taken away.

What each commit writes down about every partition lets its files be proved later without the topic: a note says where
a partition's files begin and end, how many rows they hold, and the running digest over them. Every commit of ours
carries the notes of all partitions: what it does not touch it hands on as it was, and does not vouch for anew. So the
newest note is enough, and older commits may be forgotten.

The cost of a commit levels off however many there were. Each lists the log and reads it from the last checkpoint on.
Checkpoints every few commits bound the reading; the listing is bounded by deleting entries that lie far behind. Delta's
own clean-up goes by time, which bounds nothing for a table that is committed to every second. What is deleted is older
than a checkpoint that stays, so every reader that is less than `ENTRIES_KEPT` commits behind finds what it needs; time
travel reaches as far.
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
from headrace.lake.table.files import Coverage, RangeFile

CHECKPOINT_EVERY = 10
"""Commits between checkpoints."""

ENTRIES_KEPT = 1000
"""Commits that stay in the log at least."""

SHORTEN_EVERY = 100
"""Commits between two looks at what may go."""

NOTE = "headrace"
"""The key of our notes in a commit."""

_LOOK_BACK = (1, 20, None)
"""Commits to look through for the newest notes: others may have committed since (a RESTORE, a VACUUM)."""

LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.(?:.*\.)?(?:json|crc|parquet)")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


class FileAway(OSError):
    """A file that a task wrote is not where the driver looks for it."""


class Written(msgspec.Struct, frozen=True):
    """A file that waits for its commit, with the statistics that readers prune by."""

    file: RangeFile
    stats: str


def log_actions(
    removed: Sequence[RangeFile], written: Sequence[Written], *, same_rows: bool
) -> list[AddAction | RemoveAction]:
    """A commit's entries in the log; `same_rows`: those who follow the table's changes need not look at it."""
    now_ms, changes = time.time_ns() // 1_000_000, not same_rows
    actions: list[AddAction | RemoveAction] = [
        AddAction(one.file.path, one.file.size_bytes, {}, now_ms, changes, one.stats) for one in written
    ]
    return actions + [RemoveAction(file.path, changes, now_ms, file.size_bytes, {}) for file in removed]


def settle_files(place: Place, written: Sequence[Written]) -> None:
    """Gives files their names, just before the commit; raises where one is not at its place with its size."""
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
    """Removes files whose commit was not made, on a disk, where that is certain: they might be what filled it."""
    if place.is_local:
        for path in (one.file.path for one in written if one.file.path not in live):
            for name in (path, path + PENDING):
                with contextlib.suppress(FileNotFoundError):
                    place.delete(name)


# Notes


class Note(msgspec.Struct, frozen=True):
    """A partition after a commit. `start`: what lay before it, if anything, was expired."""

    start: int
    end: int
    rows: int
    digest: str


def note_of(covered: Coverage) -> Note:
    """The note of a partition that these files make up."""
    return Note(covered.start, covered.end, covered.rows, covered.chain)


def newest_notes(delta: DeltaTable) -> dict[int, Note]:
    """By partition, as the newest commit of ours has them."""
    for most in _LOOK_BACK:
        for commit in delta.history(most):
            if NOTE in commit:
                return {int(number): msgspec.convert(note, Note) for number, note in commit[NOTE].items()}
    return {}


def in_commit(notes: Mapping[int, Note]) -> dict[str, Any]:
    """As a commit carries them."""
    return {NOTE: {str(number): msgspec.to_builtins(note) for number, note in sorted(notes.items())}}


# Its length


def shorten_log(table: Place, version: int) -> int:
    """Deletes entries of the log that nobody needs any more, and says how many."""
    names = [file.path.rpartition("/")[2] for file in table.files(LOG)]
    checkpoints = [int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))]
    kept_from = max((at for at in checkpoints if at <= version - ENTRIES_KEPT), default=0)
    gone = [name for name in names if (found := _ENTRY.fullmatch(name)) and int(found[1]) < kept_from]
    for name in sorted(gone):
        with contextlib.suppress(FileNotFoundError):  # another archive does the same
            table.delete(f"{LOG}/{name}")
    return len(gone)
