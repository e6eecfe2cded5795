"""What each commit writes down about every partition, so that its files can be proved later without the topic.

A note says where a partition's files begin and end, how many rows they hold, and the running digest over them. Every
commit of ours carries the notes of all partitions: what it does not touch it hands on as it was, and does not vouch
for anew. So the newest note is enough, and older commits may be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from deltalake import DeltaTable

from headrace.lake.files import Coverage

NOTE = "headrace"
"""The key of our notes in a commit."""

_LOOK_BACK = (1, 20, None)
"""Commits to look through for the newest notes: others may have committed since (a RESTORE, a VACUUM)."""


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
