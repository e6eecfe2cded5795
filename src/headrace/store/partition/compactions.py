"""What compaction did to a partition, counted by the node that does it."""

from __future__ import annotations

import msgspec


class Compactions(msgspec.Struct):
    """Since the node opened the partition."""

    passes: int = 0
    removed_bytes: int = 0
    """Of the format `log`, which removes parts of batches."""
    removed_records: int = 0
    """Of the format `stream`, which removes entries."""
    waits_for_memory: bool = False
