"""The border between the compacted part of a log and the rest, and when it should move. Pure.

Stored as JSON in the field `clean` of the partition's meta. The script that moves it compares it byte by byte, so it is
also the generation of the compacted part.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.store.partition.index import Index, Point, Totals
from headrace.store.partition.old_records import CompactionPolicy

_TOMBSTONE_ROUNDS_PER_RETENTION = 10


class CleanState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Below `end` the last record of each key is left, in entries of their own."""

    end: int = 0
    token: str = ""
    """Token of the pass that wrote this state."""
    finished_ms: int = 0
    max_timestamp: int = -1
    size_bytes: int = 0
    """Bytes ever appended below the end: where the index of the rest begins."""
    entries: int = 0
    kept: Totals = Totals()
    """In the copy."""
    horizon_ms: int | None = None
    """When the first tombstone may go that is in the copy."""

    @property
    def point(self) -> Point:
        """The totals before the end, in the index's form."""
        return Point(self.end, self.max_timestamp, self.size_bytes, self.entries)


NOTHING_CLEAN = CleanState()


def parse_state(stored: bytes | None) -> CleanState:
    """The stored state. An unreadable one is an error: guessing would hide records."""
    return msgspec.json.decode(stored, type=CleanState) if stored else NOTHING_CLEAN


class Dirt(NamedTuple):
    """The part of the log after the compacted part that is old enough to be compacted."""

    size_bytes: int
    first_ms: int
    """The time of its first record; -1 if nobody asked, or it has none."""


def is_due(state: CleanState, policy: CompactionPolicy, now_ms: int, clean_bytes: int, dirt: Dirt) -> bool:
    """Whether to compact, by Kafka's rules: enough is new, something new has waited too long.

    Unlike in Kafka old tombstones go although nothing is new, but not with a pass for each one of them.
    """
    if dirt.size_bytes > 0:
        if 0 <= dirt.first_ms < now_ms - policy.max_lag_ms:
            return True
        if dirt.size_bytes / (clean_bytes + dirt.size_bytes) > policy.dirty_ratio:
            return True
    if state.horizon_ms is None or now_ms < state.horizon_ms:
        return False
    return now_ms >= state.finished_ms + policy.delete_retention_ms // _TOMBSTONE_ROUNDS_PER_RETENTION


def old_enough(index: Index, start: int, end: int, newest_ms: int) -> int:
    """The end of the part without newer records, by the index: a stretch counts by its newest record.

    That is as in Kafka, where it is a segment's newest record that counts.
    """
    for at, age in enumerate(index.ages):
        stop = index.offsets[at + 1] if at + 1 < len(index) else end
        if stop > start and age > newest_ms:
            return max(min(index.offsets[at], end), start)
    return end
