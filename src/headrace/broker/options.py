"""The broker's limits and times. Each is a setting of the same name; docs/behaviour.md says what it is for."""

from __future__ import annotations

import msgspec


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker is told from outside."""

    host: str = "127.0.0.1"
    port: int = 9092
    frame_limit_bytes: int = 100 << 20
    request_budget_bytes: int = 256 << 20
    request_elements_max: int = 100_000
    connections_max: int = 1_000
    connections_idle_ms: int = 600_000
    pipeline_max: int = 64
    write_buffer_bytes: int = 1 << 20
    shutdown_grace_ms: int = 10_000
    store_wait_ms: int = 2_000
    auto_create_topics: bool = True
    default_partitions: int = 1
    delete_topics_enabled: bool = True
    topics_max: int = 10_000
    topic_partitions_max: int = 1_000
    partitions_max: int = 20_000
    message_max_bytes: int = 1_048_588
    log_retention_ms: int = 604_800_000
    log_retention_bytes: int = -1
    retention_check_interval_ms: int = 300_000
    fetch_max_bytes: int = 55 << 20
    fetch_sessions_max: int = 1_000
    offsets_retention_check_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
