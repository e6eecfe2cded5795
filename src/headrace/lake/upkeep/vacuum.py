"""Deletes files that no table needs, once nobody can still be reading or about to commit them.

Killed writers leave pending files, which nobody will commit. Removing one that is still in flight costs a round but no
rows: a file gets its final name just before the commit, which fails if the file is gone. So an hour is enough, whereas
files with final names need a day. A writer that survives a failed round removes its own files at once. Object stores
have no pending files.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Protocol

from headrace.lake.storage.place import PENDING, Place
from headrace.lake.table.names import has_mark

LEAST_RETENTION_HOURS = 24
DEFAULT_RETENTION_HOURS = 48

LEFT_BEHIND = timedelta(hours=1)
"""Much longer than any round takes from writing a file to its commit."""


def leftovers(table: Place, mark: str | None = None) -> list[str]:
    """Pending files of a table that are old enough to be leftovers; with a mark, only those that carry it."""
    if not table.is_local:
        return []
    before = datetime.now(UTC) - LEFT_BEHIND
    pending = [file for file in table.files() if file.path.endswith(PENDING)]
    return [file.path for file in pending if (has_mark(file.path, mark) if mark else file.modified < before)]


def remove_leftovers(table: Place, mark: str | None = None) -> list[str]:
    """Removes them; returns their paths."""
    gone = leftovers(table, mark)
    for path in gone:
        with contextlib.suppress(FileNotFoundError):
            table.delete(path)
    return gone


class InPlace(Protocol):
    """A table of the lake: a topic's own, or a derived one."""

    place: Place


def vacuum(table: InPlace, retention_hours: int, *, dry_run: bool) -> list[str]:
    """Deletes files that the table has not needed for this long, or never did; returns their paths."""
    if retention_hours < LEAST_RETENTION_HOURS:
        raise ValueError(
            f"Files must be kept for at least {LEAST_RETENTION_HOURS} hours: a newer one may still be committed."
        )
    gone = leftovers(table.place) if dry_run else remove_leftovers(table.place)
    unused = table.place.delta().vacuum(
        retention_hours=retention_hours, dry_run=dry_run, enforce_retention_duration=False, full=True
    )
    return sorted({*gone, *unused})
