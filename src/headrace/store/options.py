"""The store's limits and times, with their defaults. Most are settings; docs/settings.md describes them."""

from __future__ import annotations

import msgspec

from headrace.store.keys import DEFAULT_PREFIX
from headrace.store.usable_memory import AUTOMATIC


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the store."""

    prefix: str = DEFAULT_PREFIX
    timeout_ms: int = 5_000
    node_lease_ms: int = 3_000
    tail_cache_bytes: int = AUTOMATIC
    read_ahead_bytes: int = 32 << 20
    append_entry_bytes: int = 1 << 20
    index_interval_bytes: int = 64 << 10
    snapshot_interval_bytes: int = 8 << 20
    producer_expiration_ms: int = 86_400_000
    memory_high_mark_percent: int = 90
    allow_eviction: bool = False
    cold_timeout_ms: int = 10_000
    cold_bytes_per_second: int = 32 << 20
    store_replicas: int = -1
    replica_timeout_ms: int = 5_000
