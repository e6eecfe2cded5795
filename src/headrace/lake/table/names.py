"""The names in a lake: the folder of a topic's table, and the files of a table.

A folder belongs to one topic, even on disks that ignore case. Topic names consist of letters, digits, `.`, `_` and `-`.
A capital becomes `_` and its lower case letter, `_` becomes `__`. So `_` before anything else never comes from a topic,
and such names are ours: the table of a deleted topic, a name too long for a file system, derived tables
(`orders_.typed`).

A file's name has the partition, the range of offsets that the file covers, its row count and its digest. So the list
of live files shows what is in a table, without trusting transactions, notes or statistics. A range may have fewer
records than offsets (control records, compaction, offsets that are times). An accepted gap is also a file, without
rows. Names are unique, so a file in flight belongs to one writer. Until its commit a file on a disk is pending and has
another name (`Place.put`): if it is removed before the commit, the commit fails, so leftovers of killed writers can be
deleted long before a day has passed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from contextvars import ContextVar

import msgspec

from headrace.organisations import DEFAULT_ORGANISATION

_ORGANISATIONS = "_.orgs"
LONGEST = 180
"""Maximum length of a folder's name; file systems allow 255, and a deleted topic's table gets its id appended."""
_TOPIC_ID = re.compile("[0-9a-f]{32}")
GAP = "gap"
_MARK_HEX = 8
_NAME = re.compile(r"p(\d+)/(\d{20})-(\d{20})-(\d+)-([0-9a-f]{32}|gap)-[0-9a-f]{16}\.parquet")


# Folders


def folder_of(topic: str) -> str:
    """The folder name of a topic's table."""
    name = "".join("__" if char == "_" else f"_{char.lower()}" if char.isupper() else char for char in topic)
    if len(name) <= LONGEST:
        return name
    return f"{name[:100].rstrip('_')}_.{hashlib.sha256(topic.encode()).hexdigest()}"


def folder_of_organisation(organisation: str) -> str:
    """The folder of an organisation's tables, unless the organisation owns the whole lake."""
    return f"{_ORGANISATIONS}/{organisation}"


def organisation_of_folder(root: str) -> str:
    """The organisation whose tables are directly in a folder."""
    above, _, organisation = root.rstrip("/").rpartition("/")
    return organisation if above.rpartition("/")[2] == _ORGANISATIONS else DEFAULT_ORGANISATION


def folder_with_id(topic: str, topic_id: bytes) -> str:
    """The folder name of a table whose topic was deleted and recreated, so that two tables share the name."""
    return f"{folder_of(topic)}_.{topic_id.hex()}"


def folder_of_derived(folder: str, what: str) -> str:
    """The folder name of a table derived from the one in `folder`: its typed rows, or its rejects."""
    return f"{folder}_.{what}"


def is_derived(folder: str) -> bool:
    """Whether a folder has a derived table."""
    return folder.endswith(("_.typed", "_.rejects"))


def is_folder_of(folder: str, topic: str) -> bool:
    """Whether a folder is for a topic of this name, current or deleted."""
    plain = folder_of(topic)
    return folder == plain or (
        folder.startswith(f"{plain}_.") and _TOPIC_ID.fullmatch(folder[len(plain) + 2 :]) is not None
    )


# Files


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
