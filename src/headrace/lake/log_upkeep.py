"""Keeps a table's Delta log short, so that the cost of a commit levels off however many there were.

Each commit lists the log and reads it from the last checkpoint on. Checkpoints every few commits bound the reading; the
listing is bounded by deleting entries that lie far behind. Delta's own clean-up goes by time, which bounds nothing for
a table that is committed to every second. What is deleted is older than a checkpoint that stays, so every reader that
is less than `ENTRIES_KEPT` commits behind finds what it needs; time travel reaches as far.
"""

from __future__ import annotations

import contextlib
import re

from headrace.lake.place import Place

CHECKPOINT_EVERY = 10
"""Commits between checkpoints."""

ENTRIES_KEPT = 1000
"""Commits that stay in the log at least."""

SHORTEN_EVERY = 100
"""Commits between two looks at what may go."""

LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.(?:.*\.)?(?:json|crc|parquet)")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


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
