"""The broker's limits and times, with their defaults. Each is a setting of the same name.

docs/behaviour.md says what each is for.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.store.topic_configs.table import TOPIC_CONFIGS
from headrace.wire.codec import ELEMENTS_MAX

AuthorizerMode = Literal["auto", "on", "off"]


def _of_topics(name: str) -> int:
    """The default of a topic config, which is also the broker's default for topics."""
    return int(TOPIC_CONFIGS[name].default)


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the broker."""

    host: str = "127.0.0.1"
    port: int = 9092
    frame_limit_bytes: int = 100 << 20
    request_budget_bytes: int = 256 << 20
    request_elements_max: int = ELEMENTS_MAX
    connections_max: int = 1_000
    connections_idle_ms: int = 600_000
    pipeline_max: int = 64
    straight_path: bool = True
    write_buffer_bytes: int = 1 << 20
    shutdown_grace_ms: int = 10_000
    store_wait_ms: int = 2_000
    auto_create_topics: bool = True
    default_partitions: int = 1
    delete_topics_enabled: bool = True
    topics_max: int = 10_000
    topic_partitions_max: int = 1_000
    partitions_max: int = 100_000
    message_max_bytes: int = _of_topics("max.message.bytes")
    log_retention_ms: int = _of_topics("retention.ms")
    log_retention_bytes: int = _of_topics("retention.bytes")
    min_insync_replicas: int = _of_topics("min.insync.replicas")
    retention_check_interval_ms: int = 300_000
    compaction_check_interval_ms: int = 15_000
    fetch_max_bytes: int = 55 << 20
    fetch_sessions_max: int = 1_000
    offsets_retention_check_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    metrics_names_max: int = 1_000
    metrics_partitions: bool = False
    metrics_interval_ms: int = 10_000
    authorizer: AuthorizerMode = "auto"
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False
    transaction_max_timeout_ms: int = 900_000
