"""Counters of compaction for a partition, kept by the node that runs it."""

from __future__ import annotations

import msgspec


class Compactions(msgspec.Struct):
    """Since the node opened the partition."""

    passes: int = 0
    removed_bytes: int = 0
    """For the format `log`, which removes parts of batches."""
    removed_records: int = 0
    """For the format `stream`, which removes entries."""
    waits_for_memory: bool = False
