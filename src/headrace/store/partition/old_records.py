"""The interface for old records of a partition, the same for both formats."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec


class CompactionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of a topic that compaction follows."""

    min_lag_ms: int
    max_lag_ms: int
    dirty_ratio: float
    delete_retention_ms: int


class Compactions(msgspec.Struct):
    """What compaction did since this node opened the partition."""

    passes: int = 0
    removed_bytes: int = 0
    """For the format `log`, which removes parts of batches."""
    removed_records: int = 0
    """For the format `stream`, which removes entries."""
    waits_for_memory: bool = False


class Limits(NamedTuple):
    """Age and size of the whole log, and of its part in Redis; -1 for none."""

    retention_ms: int
    retention_bytes: int
    local_ms: int
    local_bytes: int


class TroubleKind(Enum):
    """Kinds of problems that keep records in Redis."""

    AWAY = "the lake is unavailable"
    BEHIND = "the archive is behind"
    LESS = "the lake holds less than before"


class Trouble(NamedTuple):
    """Why records stay in Redis although they should leave it."""

    kind: TroubleKind
    why: str
    held_end: int = -1
